"""Brings the turns of a conversation into an order that a template accepts, without losing any text: system messages
are merged or become user messages at their place, and turns of the same role become one.

Pure functions, any thread; the messages that are given are not changed. A change at the end of a conversation changes
nothing before it, so that a prompt stays the prefix of the next one.
"""

from __future__ import annotations

from typing import Any

import msgspec

from llamad.base import json_shape
from llamad.chat.template.content import text_of

Message = dict[str, Any]

REASONING = ("reasoning_content", "thinking", "reasoning")
_BETWEEN = "\n\n"
_BLANK_ANSWER = {"role": "assistant", "content": " "}  # some templates refuse ""
_NO_QUESTION = {"role": "user", "content": ""}


def merged_systems(messages: list[Message]) -> list[Message]:
    """Return the conversation with one message for all system messages that it begins with."""
    n = _n_leading(messages)
    return messages if n < 2 else [_merged(messages[:n]), *messages[n:]]


def early_systems(messages: list[Message]) -> list[Message]:
    """Return the conversation with user messages in place of the system messages after its beginning."""
    n = _n_leading(messages)
    late = [{**one, "role": "user"} if one.get("role") == "system" else one for one in messages[n:]]
    return [*messages[:n], *late]


def with_user(messages: list[Message]) -> list[Message]:
    """Return the conversation with an empty user message after the system's, if there is no user message at all."""
    if not messages or any(one.get("role") == "user" for one in messages):
        return messages
    n = _n_leading(messages)
    return [*messages[:n], dict(_NO_QUESTION), *messages[n:]]


def with_single_calls(messages: list[Message]) -> list[Message]:
    """Return the conversation with a message for each call, and the call's result behind it. Content and reasoning stay
    with the first call; results of no known call follow the last one."""
    out: list[Message] = []
    i = 0
    while i < len(messages):
        message, calls = messages[i], messages[i].get("tool_calls")
        i += 1
        if not isinstance(calls, list) or len(calls) < 2:
            out.append(message)
            continue
        results: list[Message] = []
        while i < len(messages) and messages[i].get("role") == "tool":
            results.append(messages[i])
            i += 1
        bare = {**_without_thought(message), "content": None if message.get("content") is None else ""}
        for n, call in enumerate(calls):
            id = call.get("id") if isinstance(call, dict) else None
            own = [one for one in results if id and one.get("tool_call_id") == id]
            results = [one for one in results if one not in own]
            out += [{**(bare if n else message), "tool_calls": [call]}, *own]
        out += results
    return out


def with_results(messages: list[Message]) -> list[Message]:
    """Return the conversation with the results of tools in the message with their calls. An answer that follows them
    belongs there, too, and content before the calls becomes a message of its own."""
    out: list[Message] = []
    for message in messages:
        before = out[-1] if out else {}
        if message.get("role") == "tool" and _has_calls(before):
            response = {"name": message.get("name") or "unknown", "response": _value_of(text_of(message))}
            out[-1] = {**before, "tool_responses": [*before.get("tool_responses", ()), response]}
        elif message.get("role") == "assistant" and before.get("tool_responses") and not _has_calls(message):
            out[-1] = {**before, "content": message.get("content")}
        elif _has_calls(message) and message.get("content"):
            out.append({"role": "assistant", "content": message["content"]})
            out.append({**message, "content": ""})
        else:
            out.append(message)
    return out


def _value_of(text: str) -> Any:
    """Return a result that is JSON as its value, because the template writes values in a form of its own. Other text
    stays."""
    if json_shape.values_left(text.encode("utf-8", "replace")) < 0:
        return text
    try:
        return msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text


def with_thoughts(messages: list[Message]) -> list[Message]:
    """Return the conversation with reasoning as the first part of the content."""
    out: list[Message] = []
    for message in messages:
        thought = thought_of(message)
        if message.get("role") == "assistant" and isinstance(thought, str) and thought:
            content, parts = message.get("content"), [{"type": "thinking", "thinking": thought}]
            if content:
                parts += content if isinstance(content, list) else [{"type": "text", "text": content}]
            message = {**_without_thought(message), "content": parts}
        out.append(message)
    return out


def with_one_text(messages: list[Message]) -> list[Message]:
    """Return the conversation with the content of calls at the end of their reasoning, if they have both."""
    out: list[Message] = []
    for message in messages:
        thought, content = thought_of(message), text_of(message)
        if _has_calls(message) and isinstance(thought, str) and thought and content:
            joined_text = thought + _BETWEEN + content
            message = {**_without_thought(message), "reasoning_content": joined_text, "content": ""}
        out.append(message)
    return out


def alternating(messages: list[Message], content_beside_calls: bool) -> list[Message]:
    """Return the conversation for a template in which user and assistant alternate. An assistant's message with calls
    and the results of tools do not count there.

    Neighbours of one role become one message. If two messages of the user have calls between them, a blank answer
    separates them; an empty user message separates answers, and comes before one that begins the conversation. Without
    `content_beside_calls` the template would lose the content of a message that gets calls, so it stays alone."""
    out: list[Message] = []
    turn = "assistant"  # the role of the last turn that counts
    for message in messages:
        role, before = message.get("role"), out[-1] if out else {}
        if role not in ("user", "assistant"):
            out.append(message)
            continue
        is_call, after_call = _has_calls(message), _has_calls(before)
        is_joined = is_call == after_call or (is_call and content_beside_calls)
        if before.get("role") == role and (role == "user" or is_joined):
            out[-1] = _merged([before, message])
            if is_call and not after_call:
                turn = "user"  # the answer that counted became a call
            continue
        is_first = not any(one.get("role") in ("user", "assistant") for one in out)
        if role == turn and (is_first or not is_call):
            out.append(dict(_BLANK_ANSWER if role == "user" else _NO_QUESTION))
            turn = str(out[-1]["role"])
        out.append(message)
        turn = turn if is_call else str(role)
    return out


def thought_of(message: Message) -> Any:
    """Return the reasoning of a message, under any of its names, or ""."""
    return next((message[name] for name in REASONING if message.get(name)), "")


def _without_thought(message: Message) -> Message:
    return {key: value for key, value in message.items() if key not in REASONING}


def _n_leading(messages: list[Message]) -> int:
    """Return how many system messages the conversation begins with."""
    return next((i for i, one in enumerate(messages) if one.get("role") != "system"), len(messages))


def _has_calls(message: Message) -> bool:
    return bool(message.get("tool_calls"))


def _merged(messages: list[Message]) -> Message:
    """Return one message with the content, the reasoning and the calls of these."""
    merged = {key: value for one in reversed(messages) for key, value in one.items()}
    merged["content"] = _content([one.get("content") for one in messages])
    thoughts = [str(text) for one in messages if (text := thought_of(one))]
    if thoughts:
        merged = {**_without_thought(merged), "reasoning_content": _BETWEEN.join(thoughts)}
    calls = [
        call for one in messages if isinstance(one.get("tool_calls"), list) for call in one["tool_calls"]
    ]
    if calls:
        merged["tool_calls"] = calls
    return merged


def _content(contents: list[Any]) -> Any:
    given = [one for one in contents if one]
    if not any(isinstance(one, list) for one in given):
        return _BETWEEN.join(map(str, given))
    parts: list[Any] = []
    for one in given:
        parts += [{"type": "text", "text": _BETWEEN}] if parts else []
        parts += one if isinstance(one, list) else [{"type": "text", "text": one}]
    return parts
