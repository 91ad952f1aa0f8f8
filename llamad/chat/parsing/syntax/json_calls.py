"""Calls written as JSON objects: {"name":…,"arguments":…} and its variants, alone, in sequence or in an array.

Each generation is parsed by one thread. Members may come in any order. A call begins once its name and the start of its
arguments are known, so arguments that come before the name are held back.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from llamad.chat.parsing.syntax import json_reader
from llamad.chat.parsing.syntax.stream import Stream
from llamad.chat.parsing.syntax.text_reader import Malformed, Steps

_NAMES = frozenset(("name", "tool_name", "function"))
_ARGUMENTS = frozenset(("arguments", "parameters"))
_IDS = frozenset(("id", "tool_call_id", "call_id"))
_ALL = _NAMES | _ARGUMENTS | _IDS | {"type"}


class _Call(msgspec.Struct):
    bare: bool
    name: str = ""
    id: str = ""
    held: list[str] = msgspec.field(default_factory=list)
    begun: bool = False
    has_arguments: bool = False


def objects(stream: Stream, *closes: str) -> Steps[None]:
    """Read an array of calls, or calls in sequence, and one of the closing tags, if present."""
    yield from stream.blanks()
    if (yield from stream.first_of("[")):
        yield from _array(stream)
    else:
        yield from call(stream)
        while True:
            yield from stream.blanks()
            yield from stream.first_of(",", ";")
            yield from stream.blanks()
            if (yield from stream.peek()) != "{":
                break
            yield from call(stream)
    yield from close(stream, *closes)


def close(stream: Stream, *closes: str) -> Steps[None]:
    """Read whitespace and one of the closing tags; if there is none, the whitespace is content."""
    if closes:
        yield from stream.blanks()
        n_before = len(stream.kept())
        yield from stream.skip(*closes)
        if len(stream.kept()) > n_before:
            stream.commit()


def series(
    stream: Stream, marker: str, opens: str, one: Callable[[Stream], Steps[None]], *closes: str
) -> Steps[None]:
    """Read calls that each begin with `opens`. The marker, which is already read, is the first of these, or announces
    them all. `one` reads the rest of each call, which one of the closing tags may follow."""
    if marker != opens:
        yield from stream.blanks()
        yield from stream.expect(opens)
    while True:
        yield from one(stream)
        yield from close(stream, *closes)
        yield from stream.blanks()
        if not (yield from stream.first_of(opens)):
            return


def array(stream: Stream, bare: bool = False) -> Steps[None]:
    yield from stream.expect("[")
    yield from _array(stream, bare)


def call(stream: Stream, bare: bool = False) -> Steps[None]:
    """Read one object. A bare one, without a tag before it, may only have the members of a call."""
    yield from stream.expect("{")
    pending = _Call(bare)
    yield from _members(stream, pending, nested=False)
    _finish(stream, pending)


def call_from(stream: Stream, key: str) -> Steps[None]:
    """Read the rest of a bare object after the colon of its first member."""
    pending = _Call(True)
    yield from _members(stream, pending, nested=False, key=key)
    _finish(stream, pending)


def _finish(stream: Stream, pending: _Call) -> None:
    if not pending.begun:
        if pending.bare and not (pending.has_arguments or stream.tools.known):
            raise Malformed
        stream.begin(pending.name, pending.id)
        for piece in pending.held or ["{}"]:
            stream.arguments(piece)
    stream.end()


def _array(stream: Stream, bare: bool = False) -> Steps[None]:
    while True:
        yield from stream.blanks()
        yield from call(stream, bare)
        yield from stream.blanks()
        if not (yield from stream.first_of(",")):
            break
    yield from stream.expect("]")
    stream.commit()


def _members(stream: Stream, pending: _Call, nested: bool, key: str | None = None) -> Steps[None]:
    if key is None:
        yield from stream.blanks()
        if (yield from stream.first_of("}")):
            return
    while True:
        if key is None:
            key = yield from json_reader.whole_text(stream)
            yield from stream.blanks()
            yield from stream.expect(":")
            yield from stream.blanks()
        yield from _member(stream, pending, key, nested)
        key = None
        yield from stream.blanks()
        if (yield from stream.first_of("}")):
            return
        yield from stream.expect(",")
        yield from stream.blanks()


def _member(stream: Stream, pending: _Call, key: str, nested: bool) -> Steps[None]:
    first = yield from stream.peek()
    if key == "function" and first == "{" and not nested:
        stream.take(1)
        yield from _members(stream, pending, nested=True)
    elif key in _NAMES and first == '"' and not pending.name:
        pending.name = yield from json_reader.whole_text(stream)
        if not stream.can_begin(pending.name):
            raise Malformed
        if pending.has_arguments:
            _begin(stream, pending)
            stream.end_arguments()
    elif key in _ARGUMENTS and not pending.has_arguments:
        yield from _arguments(stream, pending, first)
    elif key in _IDS and first == '"':
        pending.id = yield from json_reader.whole_text(stream)
    elif pending.bare and key not in _ALL:
        raise Malformed
    else:
        yield from json_reader.value(stream, _ignore)


def _arguments(stream: Stream, pending: _Call, first: str) -> Steps[None]:
    """Read the arguments: an object, a string that contains one, or null."""
    if not first or first not in '{"n':
        raise Malformed
    pending.has_arguments = True
    if pending.name:
        _begin(stream, pending)
    sink = stream.arguments if pending.begun else pending.held.append
    if first == "{":
        yield from json_reader.value(stream, sink)
    elif first == "n":
        yield from stream.expect("null")
        sink("{}")
    elif (yield from stream.first_of('""')):
        sink("{}")
    else:
        yield from json_reader.text(stream, sink)
    if pending.begun:
        stream.end_arguments()


def _begin(stream: Stream, pending: _Call) -> None:
    stream.begin(pending.name, pending.id)
    pending.begun = True
    for piece in pending.held:
        stream.arguments(piece)


def _ignore(text: str) -> None:
    """Drop the text of members that do not belong to a call, such as "type"."""
