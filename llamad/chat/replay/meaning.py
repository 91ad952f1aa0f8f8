"""What an assistant turn says: content, reasoning and calls, in a form in which equal meanings are equal.

Pure, any thread. It must not know where a turn comes from.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import msgspec

from llamad.base import json_shape
from llamad.chat.template.turns import REASONING

_TEXTS = ("text", "input_text", "output_text")


class Call(msgspec.Struct, frozen=True):
    """A call: its function, the text of its arguments, and their JSON value in a canonical form."""

    name: str
    arguments: str
    value: str


class Said(msgspec.Struct, frozen=True):
    """What a turn says. Clients may cut the content into several texts."""

    contents: tuple[str, ...] = ()
    reasoning: str = ""
    calls: tuple[Call, ...] = ()

    @property
    def content(self) -> str:
        return "".join(self.contents)

    def is_said_by(self, other: Said) -> bool:
        """Whether `other`, which a client has sent, means the same. The client may have dropped the reasoning."""
        if [(one.name, one.value) for one in self.calls] != [(one.name, one.value) for one in other.calls]:
            return False
        if other.reasoning.strip() and _squeezed(self.reasoning) != _squeezed(other.reasoning):
            return False
        if len(other.contents) > 1:  # nobody knows what stood between the texts
            return _squeezed(self.content) == _squeezed(other.content)
        return self.content.strip() == other.content.strip()


def call(name: str, arguments: Any) -> Call:
    """Return a call whose arguments are JSON text or a JSON value."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return Call(name, text, _canonical(text))


def said_in(message: dict[str, Any]) -> Said | None:
    """Return what an assistant's message says, or None if it has parts that are no text."""
    contents = _contents(message.get("content"))
    if contents is None:
        return None
    thought = next((message[name] for name in REASONING if message.get(name)), "")
    calls = []
    for one in message.get("tool_calls") or ():
        function = one.get("function") if isinstance(one, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            return None
        calls.append(call(function["name"], function.get("arguments")))
    return Said(contents, thought if isinstance(thought, str) else "", tuple(calls))


def call_ids(message: dict[str, Any]) -> list[str]:
    calls = message.get("tool_calls") or ()
    return [one["id"] for one in calls if isinstance(one, dict) and isinstance(one.get("id"), str)]


def digest_after(
    before: bytes, message: dict[str, Any], said: Said | None, stable: Callable[[str], str] = str
) -> bytes:
    """Return the digest of a conversation that goes on with this message; `before` is the digest up to there. What an
    assistant says is given by its meaning, without the reasoning and the ids of its calls. `stable` returns a text in
    which the markers of files are the same for every request."""
    after = blake2b(before, digest_size=16)
    after.update(str(message.get("role")).encode("utf-8", "replace") + b"\0")
    if said is not None:
        texts = [said.content.strip(), *(text for one in said.calls for text in (one.name, one.value))]
    else:
        texts = [stable(text) for text in _texts(message.get("content"))]
    for text in texts:
        data = text.encode("utf-8", "replace")
        after.update(b"%d:" % len(data))
        after.update(data)
    return after.digest()


def _texts(content: Any) -> list[str]:
    """Return all texts of a message, the markers of its files among them."""
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return [text for text in texts if isinstance(text, str)]


def _contents(content: Any) -> tuple[str, ...] | None:
    if content is None:
        return ()
    if isinstance(content, str):
        return (content,)
    if not isinstance(content, list):
        return None
    texts = []
    for part in content:
        is_text = isinstance(part, dict) and part.get("type", "text") in _TEXTS and not part.get("is_media")
        if not is_text or not isinstance(part.get("text"), str):
            return None
        texts.append(part["text"])
    return tuple(texts)


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _canonical(text: str) -> str:
    """Return JSON text in one form for each value. What is no JSON stays as it is."""
    if not text.strip():
        return "{}"
    if json_shape.values_left(text.encode("utf-8", "replace")) < 0:
        return text
    try:
        value = json.loads(text, parse_float=_number)
    except (ValueError, RecursionError):
        return text.strip()
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _number(text: str) -> int | float:
    """Return a number as JavaScript writes it: 1.0 is 1."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value
