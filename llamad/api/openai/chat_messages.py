"""The messages of a chat request in their current form, with markers for files.

Any thread. Raises every 400 about the messages themselves.
"""

from __future__ import annotations

from typing import Any

from llamad.api.request.errors import ApiError, bad
from llamad.api.request.media import FILE_PARTS, Markers, part_file


def current_messages(messages: list[Any], media: Markers | None) -> list[dict[str, Any]]:
    """Return the messages in their current form: the older `function_call` and role `function` become calls and
    results. Files become markers; without `media` the model reads text only."""
    if not messages:
        raise bad('"messages" must be a non-empty array')
    converted = [_message(message, i, media) for i, message in enumerate(messages)]
    for i, message in enumerate(converted):
        if message.get("function_call") is not None and not message.get("tool_calls"):
            call = {"id": f"call_{i}", "type": "function", "function": message.pop("function_call")}
            message["tool_calls"] = [_call(call, i)]
        if message["role"] == "function":
            message["role"] = "tool"
            calls = converted[i - 1].get("tool_calls") if i else None
            if calls:
                message.setdefault("tool_call_id", calls[0].get("id"))
    return converted


def _message(given: Any, i: int, media: Markers | None) -> dict[str, Any]:
    if not isinstance(given, dict) or not isinstance(given.get("role"), str) or not given["role"]:
        raise bad(f'"messages[{i}]" must be an object with a "role"')
    message: dict[str, Any] = dict(given)
    content = message.get("content")
    if isinstance(content, list):
        message["content"] = [_part(part, i, media) for part in content]
    elif content is None:
        if message["role"] in ("user", "system", "developer"):
            if "content" not in message:
                raise bad(f'"messages[{i}]" has no "content"')
            message["content"] = ""
    elif isinstance(content, str):
        if media is not None:
            message["content"] = media.in_text(content, f"messages[{i}].content")
    else:
        raise bad(f'"messages[{i}].content" must be a string, an array of parts or null')
    for name in ("name", "tool_call_id", "reasoning_content"):
        value = message.get(name)
        if value is not None and not isinstance(value, str):
            raise bad(f'"messages[{i}].{name}" must be a string')
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise bad(f'"messages[{i}].tool_calls" must be an array')
    if calls:
        message["tool_calls"] = [_call(call, i) for call in calls]
    return message


def _call(call: Any, i: int) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise bad(f'"messages[{i}].tool_calls" must be objects with a "function" that has a "name"')
    if not isinstance(function.get("arguments"), str | dict | None):
        raise bad(f'"messages[{i}].tool_calls": "arguments" must be a string')
    if not isinstance(call.get("id"), str | None):
        raise bad(f'"messages[{i}].tool_calls": "id" must be a string')
    return {
        **call,
        "type": "function",
        "function": {**function, "arguments": function.get("arguments") or ""},
    }


def _part(part: Any, i: int, media: Markers | None) -> dict[str, Any]:
    """Return a part of a message as text. Text parts have several names, but templates know one. Files become
    markers."""
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in FILE_PARTS:
        if media is None:
            raise ApiError(501, f'"messages[{i}]" has a part of type "{kind}"; this model reads text only')
        marker = media.add(part_file(part, kind, f"messages[{i}]"))
        return {"type": "text", "text": marker, "is_media": True}
    if kind not in ("text", "input_text", "output_text", "refusal"):
        raise bad(f'"messages[{i}]" has a part of unknown "type"')
    text = part.get("refusal" if kind == "refusal" else "text")
    if not isinstance(text, str):
        raise bad(f'"messages[{i}]" has a part without text')
    return {"type": "text", "text": text if media is None else media.in_text(text, f"messages[{i}].content")}
