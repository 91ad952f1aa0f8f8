"""Turns requests to /v1/responses into chat requests, which the rest of llamad understands.

Pure functions, any thread. Raises every 400 and 501 about the endpoint's own fields; recall.py raises those about
stored responses.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec
from msgspec import Meta

from llamad.api.openai.namespaces import Member, full_name, read_offer
from llamad.api.openai.reasoning import effort
from llamad.api.openai.recall import Recall
from llamad.api.openai.request import ChatRequest, Effort
from llamad.api.request import cache_hints
from llamad.api.request.errors import ApiError, bad
from llamad.api.request.ignored_fields import RESPONSES, Hosted, LeftOut
from llamad.api.service.response_store import ResponseStore
from llamad.options.option import LEFT_OUT
from llamad.options.ranges import Many

# Fields that refer to something that is not stored here.
_ELSEWHERE = {
    "conversation": 'send "previous_response_id", or the whole conversation as input',
    "prompt": "send the prompt's text as instructions or input",
}
# The first one has no effect, because reasoning is returned as plain text.
_INCLUDES = ("reasoning.encrypted_content", "message.output_text.logprobs")
# Fields of /v1/chat/completions and llama-server that have another name here, or none.
_FOREIGN = (
    "messages echo n n_cmpl n_predict max_tokens max_completion_tokens response_format functions function_call"
    " logprobs add_generation_prompt reasoning_effort n_probs post_sampling_probs return_tokens"
    " response_fields"
).split()


class ResponseRequest(ChatRequest, kw_only=True):
    """A chat in the form of /v1/responses; into_chat() converts it."""

    LIMITS: ClassVar[tuple[str, ...]] = ("max_output_tokens",)
    REFUSED: ClassVar[dict[str, str]] = {
        name: f'"{name}" is not stored on this server; {instead}' for name, instead in _ELSEWHERE.items()
    } | {name: f'"{name}" is not a field of this endpoint' for name in _FOREIGN}
    HOSTED: ClassVar[Hosted] = RESPONSES
    FORMAT: ClassVar[str] = "text.format"

    input: Annotated[str | list[Any] | None, Meta(description="a string or a non-empty array of items")] = (
        None
    )
    instructions: str | None = None
    max_output_tokens: Many = LEFT_OUT
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    include: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None
    store: bool = True
    previous_response_id: str | None = None

    def hint_of_blocks(self) -> int:
        return cache_hints.of_blocks(self.input)

    def drop_documents(self) -> None:
        super().drop_documents()
        self.input = self.text = self.reasoning = self.metadata = None


# A stream repeats these fields in its first events, in each progress event and in its last one, on the event loop.
ECHO_BYTES_MAX = 1 << 20


class Given(NamedTuple):
    """What the response needs of its request: the fields that it echoes; the conversation so far as JSON, if it shall
    be stored; and the functions that have a namespace."""

    echo: dict[str, Any]
    items: bytes | None
    members: dict[str, Member]


def into_chat(request: ResponseRequest, store: ResponseStore, key: str) -> Given:
    """Turn the request into a chat, in place. Raises ApiError for what is not supported."""
    for name in request.include:
        if name not in _INCLUDES:
            request.left_out.add(name, "include")
    limit = request.max_output_tokens
    echo = {
        "instructions": request.instructions,
        "max_output_tokens": None if limit == LEFT_OUT else limit,
        "metadata": request.metadata or {},
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "previous_response_id": request.previous_response_id,
        "reasoning": request.reasoning or {"effort": None, "summary": None},
        "text": request.text or {"format": {"type": "text"}},
        "tool_choice": request.tool_choice or "auto",
        "tools": request.tools or [],
        "top_logprobs": request.top_logprobs,
        "user": request.user or None,
    }
    n_echo = len(msgspec.json.encode(echo))
    if n_echo > ECHO_BYTES_MAX:
        raise bad(
            f"What the response repeats of its request has {n_echo} bytes, and may have {ECHO_BYTES_MAX}: shorten"
            ' "tools", "instructions", "metadata", "text" or "user"'
        )
    items = _conversation(request, store, key)
    request.messages = _instructions(request.instructions) + _messages(items, request.left_out)
    request.tools, request.tool_choice, members = read_offer(
        request.tools or [], request.tool_choice, request.left_out
    )
    request.response_format = _format(request.text, request.left_out)
    request.logprobs = "message.output_text.logprobs" in request.include or request.top_logprobs > 0
    request.reasoning_effort = _effort(request.reasoning)
    return Given(echo, msgspec.json.encode(items) if request.store else None, members)


def _conversation(request: ResponseRequest, store: ResponseStore, key: str) -> list[Any]:
    """Return the items of the earlier turns, followed by the request's own, in which stored items replace
    references."""
    sent, previous = request.input, request.previous_response_id
    if not sent:
        raise bad('"input" must be a string or a non-empty array of items')
    recall = Recall(store, key)
    before = [] if previous is None else recall.conversation(previous)
    own = [{"role": "user", "content": sent}] if isinstance(sent, str) else sent
    return before + recall.with_items(own)


def _effort(reasoning: dict[str, Any] | None) -> Effort | None:
    """Return `reasoning.effort`. All reasoning is returned, so a summary would add nothing."""
    return None if reasoning is None else effort(reasoning.get("effort"), '"reasoning": "effort"')


def _format(text: dict[str, Any] | None, left_out: LeftOut) -> dict[str, Any] | None:
    """Return `text.format` as in a chat, where the schema is one level deeper; here it is beside the name."""
    if text is None:
        return None
    if text.get("verbosity") not in (None, "medium"):
        left_out.add("verbosity", "text")
    value = text.get("format")
    if value is None:
        return None
    if not isinstance(value, dict) or value.get("type") not in ("text", "json_object", "json_schema"):
        raise bad('"text": "format" must have the "type" text, json_object or json_schema')
    if value["type"] != "json_schema":
        return {"type": value["type"]}
    if not isinstance(value.get("schema"), dict):
        raise bad('"text": "format" has no "schema"')
    return {"type": "json_schema", "json_schema": {"schema": value["schema"], "strict": value.get("strict")}}


def _instructions(text: str | None) -> list[dict[str, Any]]:
    return [{"role": "system", "content": text}] if text else []


def _messages(items: list[Any], left_out: LeftOut) -> list[dict[str, Any]]:
    """Return the items as messages. An assistant's reasoning, text and calls are separate items, but one message in a
    chat."""
    out: list[dict[str, Any]] = []
    turn: dict[str, Any] | None = None  # the message of the assistant in progress
    for i, item in enumerate(items):
        where = f'"input[{i}]"'
        if not isinstance(item, dict):
            raise bad(f"{where} must be an object")
        kind = item.get("type") or ("message" if "role" in item else None)
        if kind == "message" and item.get("role") != "assistant":
            turn = None
            if item.get("role") not in ("user", "system", "developer"):
                raise bad(f'{where} must have the "role" user, assistant, system or developer')
            out.append({"role": item["role"], "content": _content(item.get("content"), where)})
        elif kind == "function_call_output":
            turn = None
            if not isinstance(item.get("call_id"), str):
                raise bad(f'{where} has no "call_id"')
            content = _content(item.get("output"), where)
            out.append({"role": "tool", "tool_call_id": item["call_id"], "content": content})
        elif kind in ("message", "function_call", "reasoning"):
            if turn is None or (kind != "function_call" and (turn["content"] or turn.get("tool_calls"))):
                turn = {"role": "assistant", "content": None}
                out.append(turn)
            _add(turn, kind, item, where)
        elif isinstance(kind, str):
            left_out.add(kind, "input")
        else:
            raise bad(f'{where} must have a "type"')
    return out


def _add(turn: dict[str, Any], kind: str, item: dict[str, Any], where: str) -> None:
    """Add an item to the assistant's turn."""
    if kind == "message":
        turn["content"] = _content(item.get("content"), where)
    elif kind == "function_call":
        if not all(isinstance(item.get(name), str) for name in ("call_id", "name", "arguments")):
            raise bad(f'{where} must have "call_id", "name" and "arguments"')
        namespace = item.get("namespace")
        if not isinstance(namespace, str | None):
            raise bad(f'{where}: "namespace" must be a string')
        function = {"name": full_name(namespace or "", item["name"]), "arguments": item["arguments"]}
        call = {"id": item["call_id"], "type": "function", "function": function}
        turn.setdefault("tool_calls", []).append(call)
    else:
        parts = item.get("content") or item.get("summary") or []
        if not isinstance(parts, list):
            raise bad(f'{where}: "content" must be an array')
        texts = [
            part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)
        ]
        if texts:
            turn["reasoning_content"] = "\n".join([turn.get("reasoning_content", ""), *texts]).lstrip("\n")


def _content(value: Any, where: str) -> str | list[dict[str, Any]]:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise bad(f"{where} must have content: a string or an array of parts")
    out = []
    for part in value:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("input_image", "input_audio"):
            out.append(part)
            continue
        if kind == "input_file":
            raise ApiError(501, f'{where} has a part of type "{kind}"; this model reads text only')
        if kind not in ("input_text", "output_text", "text", "refusal"):
            raise bad(f'{where} has a part of unknown "type"')
        text = part.get("refusal" if kind == "refusal" else "text")
        if not isinstance(text, str):
            raise bad(f"{where} has a part without text")
        out.append({"type": "text", "text": text})
    return out
