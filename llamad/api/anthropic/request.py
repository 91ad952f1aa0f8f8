"""Owns the way from Anthropic's request bodies to a chat's in OpenAI's form, which the rest of llamad understands.

Pure functions on the event loop. Every 400 and 501 about Anthropic's own fields is born here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from llamad.api.request import fields
from llamad.api.request.errors import ApiError, bad
from llamad.flags.settings import Settings

# Annotations, and wishes about a provider's machines and prices: they have nothing to decide here.
_ANNOTATIONS = ("metadata", "service_tier", "inference_geo", "speed", "cache_control", "diagnostics")
# What would need somebody to run tools, keep files or rewrite the conversation.
_ELSEWHERE = ("container", "mcp_servers", "context_management")
# OpenAI's and llama-server's names for what Anthropic's clients say in another way, or cannot ask for.
_FOREIGN = (
    "stop n n_cmpl n_predict max_completion_tokens response_format reasoning_format logprobs top_logprobs"
    " parallel_tool_calls functions function_call stream_options add_generation_prompt"
    " prompt n_probs post_sampling_probs return_tokens timings_per_token response_fields"
).split()
_OWN = frozenset(
    "system messages tools tool_choice thinking output_config max_tokens stop_sequences chat_template_kwargs".split()
) | {*_ANNOTATIONS, *_ELSEWHERE, *_FOREIGN}
_EFFORTS = ("low", "medium", "high", "xhigh", "max")


class Thinking(NamedTuple):
    """How thoughts are told: not at all, or as blocks, whose text may be left out."""

    shown: bool
    empty: bool


def chat_body(body: dict[str, Any], settings: Settings) -> tuple[dict[str, Any], Thinking]:
    """The same chat as POST /v1/chat/completions takes it; options that Anthropic does not know stay as they are."""
    for name in _ELSEWHERE:
        if body.get(name):
            raise ApiError(501, f'"{name}" is not supported: this server only generates text')
    for name in _FOREIGN:
        if body.get(name) is not None:
            raise bad(f'"{name}" is not a field of this endpoint')
    out = {name: value for name, value in body.items() if name not in _OWN}
    out["messages"] = _system(body) + _messages(body)
    out["tools"] = _tools(body)
    out.update(_tool_choice(body))
    kwargs = body.get("chat_template_kwargs")
    if not isinstance(kwargs, dict | None):
        raise bad('"chat_template_kwargs" must be an object')
    told, thinking = _thinking(body)
    effort, wanted = _output(body)
    out["chat_template_kwargs"] = {**told, **(kwargs or {})}
    if effort is not None:
        out["reasoning_effort"] = effort
    if "thinking_budget" in told and not body.get("grammar"):  # which is of the whole text, thoughts too
        out["reasoning_budget_tokens"] = told["thinking_budget"]
    out["response_format"] = wanted
    out["reasoning_format"] = "auto"
    stops = fields.texts(body, "stop_sequences")
    if len(stops) > settings.stop_max:
        raise bad(f'"stop_sequences" may have at most {settings.stop_max} strings (--stop-max)')
    out["stop"] = stops
    return out, thinking


def max_tokens(body: dict[str, Any], settings: Settings) -> int:
    """Required of a message, not of counting."""
    if body.get("max_tokens") is None:
        raise bad('"max_tokens" is required')
    return fields.capped(body, "max_tokens", 1, settings.n_predict_max or None, "--n-predict-max")


def _thinking(body: dict[str, Any]) -> tuple[dict[str, Any], Thinking]:
    """Variables for the template, and how thoughts are told. A budget is told to templates that know one, too."""
    value = body.get("thinking")
    if value is None:
        return {}, Thinking(True, False)
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "disabled":
        return {"enable_thinking": False}, Thinking(False, False)
    if kind not in ("enabled", "adaptive"):
        raise bad('"thinking" must be an object with the "type" "enabled", "adaptive" or "disabled"')
    display = fields.text(value, "display", "summarized")
    if display not in ("summarized", "omitted"):
        raise bad('"thinking": "display" must be "summarized" or "omitted"')
    told: dict[str, Any] = {"enable_thinking": True}
    if value.get("budget_tokens") is not None:
        told["thinking_budget"] = fields.whole(value, "budget_tokens", 0, 1)
    return told, Thinking(True, display == "omitted")


def _output(body: dict[str, Any]) -> tuple[str | None, dict[str, Any] | None]:
    """`output_config`: how hard to think, and the schema that the answer must fit."""
    value = body.get("output_config")
    if value is None:
        return None, None
    if not isinstance(value, dict):
        raise bad('"output_config" must be an object')
    effort = value.get("effort")
    if not isinstance(effort, str | None) or (effort is not None and effort not in _EFFORTS):
        raise bad(f'"output_config": "effort" must be one of {", ".join(_EFFORTS)}')
    form = value.get("format")
    if form is None:
        return effort, None
    if not isinstance(form, dict) or form.get("type") != "json_schema" or form.get("schema") is None:
        raise bad('"output_config": "format" must be an object with the "type" "json_schema" and a "schema"')
    return effort, {"type": "json_schema", "schema": form["schema"]}


def _tools(body: dict[str, Any]) -> list[dict[str, Any]]:
    tools = body.get("tools")
    if tools is None:
        return []
    if not isinstance(tools, list):
        raise bad('"tools" must be an array')
    out = []
    for i, tool in enumerate(tools):
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str) or not tool["name"]:
            raise bad(f'"tools[{i}]" must be an object with a "name"')
        kind = tool.get("type")
        if kind not in (None, "custom"):
            raise ApiError(
                501,
                f'"tools[{i}]": tools of type "{str(kind)[:64]}" are not supported;'
                ' describe it as a tool with an "input_schema"',
            )
        if not isinstance(tool.get("input_schema"), dict):
            raise bad(f'"tools[{i}]" has no "input_schema"')
        function: dict[str, Any] = {"name": tool["name"], "parameters": tool["input_schema"]}
        if tool.get("description") is not None:
            function["description"] = fields.text(tool, "description")
        out.append({"type": "function", "function": function})
    return out


def _tool_choice(body: dict[str, Any]) -> dict[str, Any]:
    value = body.get("tool_choice")
    if value is None:
        return {}
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "tool":
        choice: Any = {"type": "function", "function": {"name": value.get("name")}}
    elif kind in ("auto", "any", "none"):
        choice = "required" if kind == "any" else kind
    else:
        raise bad('"tool_choice" must be an object with the "type" "auto", "any", "tool" or "none"')
    parallel = not fields.flag(value, "disable_parallel_tool_use", False)
    return {"tool_choice": choice, "parallel_tool_calls": parallel}


def _system(body: dict[str, Any]) -> list[dict[str, Any]]:
    value = body.get("system")
    if value is None or value == "" or value == []:
        return []
    if not isinstance(value, str | list):
        raise bad('"system" must be a string or an array of text blocks')
    return [{"role": "system", "content": _text(value, '"system"')}]


def _messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
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
            out.append(_assistant(content, where))
        elif role == "user":
            out += _user(content, where)
        else:
            out.append({"role": role, "content": _text(content, where)})
    return out


def _user(blocks: list[Any], where: str) -> list[dict[str, Any]]:
    """Results of tools are messages of their own."""
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
            text = _joined(_text("" if content is None else content, where))
            if fields.flag(block, "is_error", False):
                text = "Error: " + text  # no template has another way to say it
            out.append({"role": "tool", "tool_call_id": block["tool_use_id"], "content": text})
        else:
            texts.append(_text_part(block, where))
    if texts:
        out.append({"role": "user", "content": texts})
    if not out:
        raise bad(f"{where} has no content")
    return out


def _assistant(blocks: list[Any], where: str) -> dict[str, Any]:
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
            thoughts.append(fields.text(block, "thinking"))
        elif kind != "redacted_thinking":  # that one only its author can read
            texts.append(_text_part(block, where))
    message: dict[str, Any] = {"role": "assistant", "content": texts or None}
    if any(thoughts):
        message["reasoning_content"] = "\n".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _kind(block: Any, where: str) -> str:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str):
        raise bad(f'{where} has a block without a "type"')
    return kind


def _text_part(block: Any, where: str) -> dict[str, Any]:
    kind = _kind(block, where)
    if kind in ("tool_use", "tool_result", "thinking", "redacted_thinking"):
        raise bad(f'{where}: a block of type "{kind}" is not allowed here')
    if kind != "text":
        raise ApiError(501, f'{where} has a block of type "{kind[:64]}"; this model reads text only')
    if not isinstance(block.get("text"), str):
        raise bad(f'{where} has a text block without "text"')
    return {"type": "text", "text": block["text"]}


def _text(value: Any, where: str) -> str | list[dict[str, Any]]:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise bad(f"{where}: content must be a string or an array of blocks")
    return [_text_part(block, where) for block in value]


def _joined(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)
