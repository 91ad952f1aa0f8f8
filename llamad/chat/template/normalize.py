"""Turns messages as clients send them into messages that a template understands. Pure: its input is not changed.

`normalize` runs before ChatTemplate.render. It leaves alone what the template supports itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from llamad.base import json_shape
from llamad.chat.template.caps import Caps
from llamad.chat.template.content import is_text, joined, text_of
from llamad.chat.template.errors import TemplateError
from llamad.chat.template.turns import (
    alternating,
    early_systems,
    merged_systems,
    with_one_text,
    with_results,
    with_single_calls,
    with_thoughts,
    with_user,
)

Message = dict[str, Any]

TOOLS_PROMPT = (
    "You can call functions. Each is described by a JSON object, one per line:\n{tools}\n\n"
    "To call functions, answer with {form} and nothing else:\n{example}\n"
    "Otherwise answer in plain text."
)
EXAMPLE = ("function_name", {"parameter": "value"})

Write = Callable[[Sequence[tuple[str, Any]]], str]  # calls, each a name and its arguments, as text


def generic(calls: Sequence[tuple[str, Any]]) -> str:
    listed = [{"name": name, "arguments": arguments} for name, arguments in calls]
    return json.dumps({"tool_calls": listed}, ensure_ascii=False)


def normalize(
    messages: list[Message], caps: Caps, tools: list[dict[str, Any]] | None = None, write: Write = generic
) -> list[Message]:
    """Return the same conversation for a template with these `caps`.

    - `developer` becomes `system`.
    - Missing content becomes "" (or None beside tool calls, if the template writes calls only then).
    - Content in parts is joined to one text (with newlines) if the template takes only strings, and for roles other
      than user if all parts are text. A string becomes one part if the template takes only parts. For a template that
      takes only strings, other parts are dropped; media must have become text before.
    - The arguments of tool calls become a dict or JSON text, as the template needs; text that is not a JSON object
      stays. Their ids become nine letters and digits for a template that accepts no others.
    - If the template writes no tool calls, `write` turns them into the message's text; by default it uses the generic
      form {"tool_calls": [{"name": ..., "arguments": {...}}]}. If it writes no tool results, a result becomes a user
      message {"tool_response": {"name": ..., "content": ...}}. If it describes no tools, `tools` are described in the
      system message, one JSON object per line, with the form of a call.
    - If the template writes only one call of a message, each gets a message of its own, and its result behind it.
    - If the template has no system role, or loses its text here, the text is put before the next user message or, if
      none follows, becomes a user message. If it writes one system message only, or only at the beginning, the others
      are merged with that one, or become user messages at their place.
    - If user and assistant must alternate, neighbours of one role are merged.
    - Results of tools and reasoning get the form that the template reads, if that is another than OpenAI's.
    Other roles and fields are passed on.
    """
    _check_arguments(messages)
    result = [_plain(message, caps) for message in messages]
    _name_results(result)
    if caps.call_ids_of_nine:
        _shorten_ids(result)
    if not caps.uses_tool_calls:
        result = [_calls_as_text(message, write) for message in result]
    elif not caps.supports_parallel_calls:
        result = with_single_calls(result)
    if not caps.uses_tool_role:
        result = _results_as_text(result)
    if not caps.several_systems:
        result = merged_systems(result)
    if not caps.late_systems:
        result = early_systems(result)
    if tools and not caps.uses_tools:
        result = _with_tools(result, tools, write)
    ends_otherwise = caps.system_needs_user and bool(result) and result[-1].get("role") != "user"
    if not caps.uses_system or ends_otherwise:
        result = _without_system(result)
    elif caps.needs_user:
        result = with_user(result)
    if caps.must_alternate:
        result = alternating(result, caps.content_beside_calls or not caps.uses_tool_calls)
    if caps.results_in_calls:
        result = with_results(result)
    if caps.calls_need_one_text:
        result = with_one_text(result)
    if caps.thinks_in_parts:
        result = with_thoughts(result)
    if not caps.accepts_string:
        result = [_as_parts(message) for message in result]
    return result


def _plain(message: Message, caps: Caps) -> Message:
    plain = dict(message)
    if plain.get("role") == "developer":
        plain["role"] = "system"
    content = plain.get("content")
    if content is None:
        plain["content"] = ""
    elif isinstance(content, list) and not (caps.accepts_parts and _keeps_parts(content, plain, caps)):
        plain["content"] = joined(content)
    calls = plain.get("tool_calls")
    if isinstance(calls, list):
        if calls:
            plain["tool_calls"] = [_call(one, caps.tool_arguments_as_object) for one in calls]
        else:
            del plain["tool_calls"]  # templates test whether it exists
    if caps.calls_need_null and plain.get("tool_calls") and plain["content"] == "":
        plain["content"] = None
    return plain


def _keeps_parts(content: list[Any], message: Message, caps: Caps) -> bool:
    """Return whether content in parts stays as it is. A user's parts stay. Many templates support parts in user
    messages only and would write others as a Python list, so in other roles text parts become a string."""
    if message.get("role") == "user" or not caps.accepts_string:
        return True
    return any(not is_text(part) for part in content)


def _call(call: Any, as_object: bool) -> Any:
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        return call
    function = dict(call["function"])
    arguments = function.get("arguments", "")
    if as_object and isinstance(arguments, str):
        function["arguments"] = _parsed(arguments)
    elif not as_object and not isinstance(arguments, str):
        function["arguments"] = json.dumps(arguments, ensure_ascii=False)
    return {**call, "function": function}


def _check_arguments(messages: list[Message]) -> None:
    """Limit the values in JSON strings, which may be parsed later. All of them together have the limit of a body."""
    left = json_shape.VALUES_MAX
    for message in messages:
        for call in message.get("tool_calls") or ():
            function = call.get("function") if isinstance(call, dict) else None
            arguments = function.get("arguments") if isinstance(function, dict) else None
            if isinstance(arguments, str):
                n_left = json_shape.values_left(arguments.encode("utf-8", "replace"), left)
                if n_left == json_shape.TOO_MANY:
                    raise TemplateError("the arguments of the tool calls have too many values")
                left = left if n_left == json_shape.TOO_DEEP else n_left


def _parsed(arguments: str) -> Any:
    """Return the arguments as a dict if they are a JSON object. Otherwise return them as they are: a model may have
    written invalid JSON, which clients send back."""
    if not arguments.strip():
        return {}
    if json_shape.values_left(arguments.encode("utf-8", "replace")) < 0:
        return arguments
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


def _name_results(messages: list[Message]) -> None:
    """Add the function's name to tool results, which only have the id of their call; templates need the name. This
    changes our copies of the messages."""
    names: dict[Any, Any] = {}
    for message in messages:
        for call in message.get("tool_calls") or ():
            if isinstance(call, dict) and isinstance(call.get("function"), dict) and _is_key(call.get("id")):
                names[call["id"]] = call["function"].get("name")
        if message.get("role") == "tool" and not message.get("name"):
            called = message.get("tool_call_id")
            if _is_key(called) and names.get(called):
                message["name"] = names[called]


def _is_key(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _shorten_ids(messages: list[Message]) -> None:
    """Shorten ids to nine characters; equal ids stay equal. This changes our copies of the messages."""
    for message in messages:
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            message["tool_calls"] = [
                {**call, "id": _of_nine(call["id"])}
                if isinstance(call, dict) and _is_key(call.get("id"))
                else call
                for call in calls
            ]
        if _is_key(message.get("tool_call_id")):
            message["tool_call_id"] = _of_nine(message["tool_call_id"])


def _of_nine(id: str) -> str:
    if len(id) == 9 and id.isascii() and id.isalnum():
        return id
    return hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:9]


def _calls_as_text(message: Message, write: Write) -> Message:
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    plain: list[tuple[str, Any]] = []
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            arguments = function.get("arguments", "")
            value = _parsed(arguments) if isinstance(arguments, str) else arguments
            plain.append((str(function.get("name")), value))
    text = write(plain)
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    before = text_of(message)
    return {**rest, "content": f"{before}\n{text}" if before else text}


def _results_as_text(messages: list[Message]) -> list[Message]:
    """Turn consecutive tool results into one user message, because many templates require alternating roles."""
    result: list[Message] = []
    before = ""
    for message in messages:
        if message.get("role") != "tool":
            result.append(message)
        elif before == "tool":
            result[-1]["content"] += "\n" + _result(message)
        else:
            result.append({"role": "user", "content": _result(message)})
        before = message.get("role", "")
    return result


def _result(message: Message) -> str:
    result = {"name": message.get("name") or message.get("tool_call_id"), "content": text_of(message)}
    if result["name"] is None:
        del result["name"]
    return json.dumps({"tool_response": result}, ensure_ascii=False)


def _with_tools(messages: list[Message], tools: list[dict[str, Any]], write: Write) -> list[Message]:
    lines = "\n".join(json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools)
    form = "a JSON object" if write is generic else "this"
    text = TOOLS_PROMPT.format(tools=lines, form=form, example=write([EXAMPLE]))
    if messages and messages[0].get("role") == "system":
        before = text_of(messages[0])
        return [{**messages[0], "content": f"{before}\n\n{text}" if before else text}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def _without_system(messages: list[Message]) -> list[Message]:
    result: list[Message] = []
    held: list[str] = []
    for message in messages:
        if message.get("role") == "system":
            if text_of(message):
                held.append(text_of(message))
            continue
        if held and message.get("role") == "user":
            message = {**message, "content": _after("\n\n".join(held), message["content"])}
            held = []
        result.append(message)
    if held:
        result.append({"role": "user", "content": "\n\n".join(held)})
    return result


def _after(text: str, content: Any) -> Any:
    if isinstance(content, list):
        return [{"type": "text", "text": text + "\n\n"}, *content]
    return f"{text}\n\n{content}" if content else text


def _as_parts(message: Message) -> Message:
    if isinstance(message.get("content"), str):
        return {**message, "content": [{"type": "text", "text": message["content"]}]}
    return message
