"""Turns Anthropic's request bodies into chat requests in OpenAI's form, which the rest of llamad understands.

Pure functions on the event loop. Raises every 400 and 501 about Anthropic's own fields.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from llamad.api.openai.request import ChatRequest
from llamad.api.request import cache_hints, checks, structured_options
from llamad.api.request.errors import ApiError, bad
from llamad.api.request.ignored_fields import MESSAGES, Hosted, LeftOut
from llamad.flags.settings import ModelSettings
from llamad.options.option import LEFT_OUT
from llamad.options.ranges import Many

# Blocks that only a model that reads PDFs, or hears, could use. Any other unknown block belongs to a tool that the
# hosted service ran, or to a feature that only the service has, and is left out.
_MEDIA = ("document", "audio", "video", "file")
# Fields of OpenAI and llama-server that have another name here, or none.
_FOREIGN = (
    "stop echo n n_cmpl n_predict max_completion_tokens response_format reasoning_format logprobs top_logprobs"
    " parallel_tool_calls functions function_call stream_options add_generation_prompt"
    " prompt n_probs post_sampling_probs return_tokens response_fields"
).split()


# What clients write at the front of the system prompt, and differs in each session or request, so that nothing after it
# could be cached. The model needs none of it.
_MARKS = (re.compile(r"x-anthropic-billing-header:(?:[ \t]*\w+=[^;\s]*;)+[ \t]*[\r\n]*"),)  # Claude Code


class ThinkingConfig(Struct):
    type: str = ""
    display: str = "summarized"
    budget_tokens: Many = LEFT_OUT


class OutputConfig(Struct):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: Annotated[
        dict[str, Any] | None, Meta(description='an object with the "type" "json_schema" and a "schema"')
    ] = None


class MessagesRequest(ChatRequest, kw_only=True):
    """A chat in Anthropic's format; into_chat() converts it. Options that Anthropic does not have stay."""

    LIMITS: ClassVar[tuple[str, ...]] = ("max_tokens",)
    REFUSED: ClassVar[dict[str, str]] = {
        name: f'"{name}" is not a field of this endpoint' for name in _FOREIGN
    }
    HOSTED: ClassVar[Hosted] = MESSAGES
    FORMAT: ClassVar[str] = "output_config.format"

    max_tokens: Many = LEFT_OUT
    system: Annotated[str | list[Any] | None, Meta(description="a string or an array of text blocks")] = None
    stop_sequences: tuple[str, ...] = ()
    thinking: Annotated[
        ThinkingConfig | None,
        Meta(description='an object with the "type" "enabled", "adaptive" or "disabled"'),
    ] = None
    output_config: OutputConfig | None = None
    thread: Any = None
    cache_control: Any = None

    def hint_of_blocks(self) -> int:
        whole = {"cache_control": self.cache_control}
        return cache_hints.of_blocks(whole, self.system, self.messages, self.tools)

    def drop_documents(self) -> None:
        super().drop_documents()
        self.system = self.output_config = None


class Thinking(NamedTuple):
    """How reasoning is shown: not at all, or as blocks, whose text may be left out."""

    shown: bool
    empty: bool


def into_chat(request: MessagesRequest, settings: ModelSettings) -> Thinking:
    """Turn the request into a request to POST /v1/chat/completions, in place. Return how reasoning is shown."""
    if request.thread is not None:
        raise _no_threads()
    left_out = request.left_out
    request.messages = _system(request.system, left_out) + _messages(request.messages, left_out)
    request.tools = _tools(request.tools or [], left_out)
    _choose_tool(request)
    variables, thinking = _thinking(request.thinking)
    if "thinking_budget" in variables and not request.whole_text:  # a grammar covers the reasoning, too
        request.reasoning_budget_tokens = variables["thinking_budget"]
    request.chat_template_kwargs = {**variables, **(request.chat_template_kwargs or {})}
    if request.output_config is not None:
        _take_output(request, request.output_config)
    request.reasoning_format = "auto"
    stops = request.stop_sequences
    if len(stops) > settings.stop_max:
        raise bad(f'"stop_sequences" may have at most {settings.stop_max} strings (--stop-max)')
    request.stop = structured_options.stops(list(stops), settings.stop_max)
    return thinking


def _no_threads() -> ApiError:
    """Return the error after which Anthropic's client sends the whole conversation, now and in later turns."""
    said = '"thread" is not supported: conversations are not stored here; send all messages without "thread"'
    return ApiError(400, said, extra={"details": {"error_code": "thread_unsupported_request"}})


def _thinking(value: ThinkingConfig | None) -> tuple[dict[str, Any], Thinking]:
    """Return the template variables, and how reasoning is shown. Templates that know a budget get it, too."""
    if value is None:
        return {}, Thinking(True, False)
    if value.type == "disabled":
        return {"enable_thinking": False}, Thinking(False, False)
    if value.type not in ("enabled", "adaptive"):
        raise bad('"thinking" must be an object with the "type" "enabled", "adaptive" or "disabled"')
    if value.display not in ("summarized", "omitted"):
        raise bad('"thinking": "display" must be "summarized" or "omitted"')
    variables: dict[str, Any] = {"enable_thinking": True}
    if value.budget_tokens != LEFT_OUT:
        variables["thinking_budget"] = value.budget_tokens
    return variables, Thinking(True, value.display == "omitted")


def _take_output(request: MessagesRequest, value: OutputConfig) -> None:
    """Read `output_config`: the reasoning effort, and the schema of the output."""
    if value.effort is not None:
        request.reasoning_effort = value.effort
    form = value.format
    if form is None:
        return
    if form.get("type") != "json_schema" or form.get("schema") is None:
        raise bad('"output_config": "format" must be an object with the "type" "json_schema" and a "schema"')
    request.response_format = {"type": "json_schema", "schema": form["schema"]}


def _tools(tools: list[Any], left_out: LeftOut) -> list[dict[str, Any]]:
    out = []
    for i, tool in MESSAGES.tools(tools, left_out):
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str) or not tool["name"]:
            raise bad(f'"tools[{i}]" must be an object with a "name"')
        if not isinstance(tool.get("input_schema"), dict):
            raise bad(f'"tools[{i}]" has no "input_schema"')
        function: dict[str, Any] = {"name": tool["name"], "parameters": tool["input_schema"]}
        if tool.get("description") is not None:
            function["description"] = checks.text("description", tool["description"])
        out.append({"type": "function", "function": function})
    return out


def _choose_tool(request: MessagesRequest) -> None:
    """Read `tool_choice`, which also says whether several tools may be called."""
    value = request.tool_choice
    if value is None:
        return
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(value, dict) or kind not in ("tool", "auto", "any", "none"):
        raise bad('"tool_choice" must be an object with the "type" "auto", "any", "tool" or "none"')
    if value.get("disable_parallel_tool_use") is not None:
        request.parallel_tool_calls = not _flag(value, "disable_parallel_tool_use")
    if kind == "tool":
        request.tool_choice = {"type": "function", "function": {"name": value.get("name")}}
    else:
        request.tool_choice = "required" if kind == "any" else kind


def _flag(document: dict[str, Any], name: str) -> bool:
    value = document.get(name)
    return False if value is None else checks.flag(name, value)


def _system(value: str | list[Any] | None, left_out: LeftOut) -> list[dict[str, Any]]:
    content = _text(value, '"system"', left_out) if value else ""
    if isinstance(content, str):
        content = _unmarked(content)
    elif content and content[0]["type"] == "text":
        first = _unmarked(content[0]["text"])
        content = [*([{**content[0], "text": first}] if first else []), *content[1:]]
    return [{"role": "system", "content": content}] if content else []


def _unmarked(text: str) -> str:
    """Return the system prompt without the marks at its front."""
    for mark in _MARKS:
        match = mark.match(text)
        text = text[match.end() :] if match is not None else text
    return text


def _messages(messages: list[Any], left_out: LeftOut) -> list[dict[str, Any]]:
    if not messages:
        raise bad('"messages" must be a non-empty array')
    out: list[dict[str, Any]] = []
    for i, message in enumerate(messages):
        where = f'"messages[{i}]"'
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ("user", "assistant", "system"):
            raise bad(f'{where} must be an object with the "role" "user" or "assistant"')
        content = message.get("content")
        if isinstance(content, str):
            out.append({"role": role, "content": content})
        elif not isinstance(content, list):
            raise bad(f"{where} must have content: a string or an array of blocks")
        elif role == "assistant":
            out += _assistant(content, where, left_out)
        elif role == "user":
            out += _user(content, where, left_out)
        else:
            out.append({"role": role, "content": _text(content, where, left_out)})
    return out


def _user(blocks: list[Any], where: str, left_out: LeftOut) -> list[dict[str, Any]]:
    """Return the messages of a user's turn; tool results become messages of their own."""
    out: list[dict[str, Any]] = []
    texts: list[dict[str, Any]] = []
    for block in blocks:
        if _kind(block, where) == "tool_result":
            if texts:
                out.append({"role": "user", "content": texts})
                texts = []
            if not isinstance(block.get("tool_use_id"), str):
                raise bad(f'{where} has a tool_result without a "tool_use_id"')
            content = block.get("content")
            result = _result(
                _text("" if content is None else content, where, left_out), _flag(block, "is_error")
            )
            out.append({"role": "tool", "tool_call_id": block["tool_use_id"], "content": result})
        else:
            texts += _text_parts(block, where, left_out)
    if texts:
        out.append({"role": "user", "content": texts})
    if not blocks:
        raise bad(f"{where} has no content")
    return out


def _result(content: str | list[dict[str, Any]], is_error: bool) -> str | list[dict[str, Any]]:
    """Return the result of a tool: as text, unless it has images. Templates have no other way to say that it is an
    error."""
    head = "Error: " if is_error else ""
    if isinstance(content, str) or all(part["type"] == "text" for part in content):
        return head + _joined(content)
    return [{"type": "text", "text": head}, *content] if head else content


def _assistant(blocks: list[Any], where: str, left_out: LeftOut) -> list[dict[str, Any]]:
    """Return one message, or none if every block is left out."""
    texts: list[dict[str, Any]] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for block in blocks:
        kind = _kind(block, where)
        if kind == "tool_use":
            if not isinstance(block.get("id"), str) or not isinstance(block.get("name"), str):
                raise bad(f'{where} has a tool_use without "id" and "name"')
            if not isinstance(block.get("input"), dict):
                raise bad(f'{where}: "input" of the tool_use "{block["name"][:64]}" must be an object')
            arguments = msgspec.json.encode(block["input"]).decode()
            function = {"name": block["name"], "arguments": arguments}
            calls.append({"id": block["id"], "type": "function", "function": function})
        elif kind == "thinking":
            thoughts.append(checks.text("thinking", block.get("thinking") or ""))
        else:
            texts += _text_parts(block, where, left_out)
    if blocks and not (texts or thoughts or calls):
        return []
    message: dict[str, Any] = {"role": "assistant", "content": texts or None}
    if any(thoughts):
        message["reasoning_content"] = "\n".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return [message]


def _kind(block: Any, where: str) -> str:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str):
        raise bad(f'{where} has a block without a "type"')
    return kind


def _text_parts(block: Any, where: str, left_out: LeftOut) -> list[dict[str, Any]]:
    """Return the texts of a block; there are none if it is left out."""
    kind = _kind(block, where)
    if kind in ("tool_use", "tool_result", "thinking"):
        raise bad(f'{where}: a block of type "{kind}" is not allowed here')
    if kind == "document" and isinstance(block.get("source"), dict):
        text = _document(block, block["source"])
        if text is not None:
            return [{"type": "text", "text": text}]
    if kind == "search_result":
        head = "\n".join(str(block[name]) for name in ("title", "source") if block.get(name))
        return [{"type": "text", "text": head}, *_parts(block.get("content"), where, left_out)]
    if kind == "image":
        return [{"type": "image_url", "image_url": {"url": _image(block.get("source"), where)}}]
    if kind in _MEDIA:
        raise ApiError(501, f'{where} has a block of type "{kind}"; this model reads text only')
    if kind != "text":  # e.g. redacted_thinking, which is encrypted, so that only its author can read it
        left_out.add(kind, "messages")
        return []
    if not isinstance(block.get("text"), str):
        raise bad(f'{where} has a text block without "text"')
    return [{"type": "text", "text": block["text"]}]


def _image(source: Any, where: str) -> str:
    """Return the address of an image; it is a data: URI if the block contains the image."""
    kind = source.get("type") if isinstance(source, dict) else None
    if kind == "base64" and isinstance(source.get("data"), str):
        return f"data:{source.get('media_type') or 'image/png'};base64,{source['data']}"
    if kind == "url" and isinstance(source.get("url"), str):
        return str(source["url"])
    raise bad(
        f'{where} has an image block whose "source" is neither "base64" with "data" nor "url" with "url"'
    )


def _document(block: dict[str, Any], source: dict[str, Any]) -> str | None:
    """Return the text of a document, after its title and context, or None if it has no text."""
    text = source.get("data") if source.get("type") == "text" else source.get("content")
    if not isinstance(text, str):
        return None
    about = (block.get(name) for name in ("title", "context"))
    return "\n".join([*(one for one in about if isinstance(one, str)), text])


def _parts(value: Any, where: str, left_out: LeftOut) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise bad(f"{where}: content must be a string or an array of blocks")
    return [part for block in value for part in _text_parts(block, where, left_out)]


def _text(value: Any, where: str, left_out: LeftOut) -> str | list[dict[str, Any]]:
    return value if isinstance(value, str) else _parts(value, where, left_out)


def _joined(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)
