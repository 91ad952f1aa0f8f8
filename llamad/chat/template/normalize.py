"""Turns messages as clients send them into what a template understands. Pure: its input is not changed.

`normalize` runs before ChatTemplate.render; what a template supports is left to it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from llamad.base import json_shape
from llamad.chat.template.caps import Caps
from llamad.chat.template.errors import TemplateError

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
    messages: list[Message],
    caps: Caps,
    tools: list[dict[str, Any]] | None = None,
    write: Write = generic,
) -> list[Message]:
    """The same conversation for a template with these `caps`.

    - `developer` becomes `system`.
    - Missing content becomes "" (None beside tool calls, if the template writes calls only then).
    - Content in parts is joined to one text (with newlines) if the template takes only strings, and for roles other
      than user if all parts are text; a string becomes one part if the template takes only parts. For a template that
      takes only strings, other parts are dropped: media must have become text before.
    - The arguments of tool calls become a dict or JSON text, as the template needs; text that is not a JSON object
      stays. Their ids become nine letters and digits for a template that accepts no others.
    - If the template writes no tool calls, they become the message's text, by `write` or, without it, in the generic
      form {"tool_calls": [{"name": ..., "arguments": {...}}]}. If it writes no tool results, a result becomes a user's
      text {"tool_response": {"name": ..., "content": ...}}. If it describes no tools, `tools` are described in the
      system message, one JSON object per line, with the form of a call.
    - If the template has no system role, the system's text is put before the next user's or, if none follows, becomes
      a user's.
    Other roles and fields are passed on.
    """
    _check_arguments(messages)
    found = [_plain(message, caps) for message in messages]
    _name_results(found)
    if caps.call_ids_of_nine:
        _shorten_ids(found)
    if not caps.uses_tool_calls:
        found = [_calls_as_text(message, write) for message in found]
    if not caps.uses_tool_role:
        found = _results_as_text(found)
    if tools and not caps.uses_tools:
        found = _with_tools(found, tools, write)
    if not caps.uses_system:
        found = _without_system(found)
    if not caps.accepts_string:
        found = [_as_parts(message) for message in found]
    return found


def _plain(message: Message, caps: Caps) -> Message:
    found = dict(message)
    if found.get("role") == "developer":
        found["role"] = "system"
    content = found.get("content")
    if content is None:
        found["content"] = ""
    elif isinstance(content, list) and not (caps.accepts_parts and _keeps_parts(content, found, caps)):
        found["content"] = joined(content)
    calls = found.get("tool_calls")
    if isinstance(calls, list):
        if calls:
            found["tool_calls"] = [_call(one, caps.tool_arguments_as_object) for one in calls]
        else:
            del found["tool_calls"]  # templates test whether it exists
    if caps.calls_need_null and found.get("tool_calls") and found["content"] == "":
        found["content"] = None
    return found


def _keeps_parts(content: list[Any], message: Message, caps: Caps) -> bool:
    """A user's parts stay. Many templates support parts in user messages only and would write others as a Python list,
    so in other roles text parts become a string."""
    if message.get("role") == "user" or not caps.accepts_string:
        return True
    return any(not _is_text(part) for part in content)


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type", "text") in ("text", "input_text", "output_text")


def joined(content: list[Any]) -> str:
    """Texts in lines of their own. An image or a sound, whose text is a marker, stands where it stands."""
    found, after_text = "", False
    for part in content:
        if _is_text(part):
            is_text = not part.get("is_media")
            found += ("\n" if is_text and after_text else "") + str(part.get("text", ""))
            after_text = is_text
    return found


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
    """JSON in strings may be parsed, so it has a body's limit on values, all of it together."""
    left = json_shape.VALUES_MAX
    for message in messages:
        for call in message.get("tool_calls") or ():
            function = call.get("function") if isinstance(call, dict) else None
            arguments = function.get("arguments") if isinstance(function, dict) else None
            if isinstance(arguments, str):
                found = json_shape.values_left(arguments.encode("utf-8", "replace"), left)
                if found == json_shape.TOO_MANY:
                    raise TemplateError("the arguments of the tool calls have too many values")
                left = left if found == json_shape.TOO_DEEP else found


def _parsed(arguments: str) -> Any:
    """A model may have written invalid JSON, which clients send back; templates that need a dict get one."""
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
    """A tool's result has the id of its call; templates want the function's name. In place, on our copies."""
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
    """Equal ids become equal nine-character ids. In place, on our copies."""
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
    """Consecutive results become one user message: many templates require alternating roles."""
    found: list[Message] = []
    before = ""
    for message in messages:
        if message.get("role") != "tool":
            found.append(message)
        elif before == "tool":
            found[-1]["content"] += "\n" + _result(message)
        else:
            found.append({"role": "user", "content": _result(message)})
        before = message.get("role", "")
    return found


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
    found: list[Message] = []
    held: list[str] = []
    for message in messages:
        if message.get("role") == "system":
            if text_of(message):
                held.append(text_of(message))
            continue
        if held and message.get("role") == "user":
            message = {**message, "content": _after("\n\n".join(held), message["content"])}
            held = []
        found.append(message)
    if held:
        found.append({"role": "user", "content": "\n\n".join(held)})
    return found


def _after(text: str, content: Any) -> Any:
    if isinstance(content, list):
        return [{"type": "text", "text": text + "\n\n"}, *content]
    return f"{text}\n\n{content}" if content else text


def text_of(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return joined(content)
    return content if isinstance(content, str) else ""


def _as_parts(message: Message) -> Message:
    if isinstance(message.get("content"), str):
        return {**message, "content": [{"type": "text", "text": message["content"]}]}
    return message
