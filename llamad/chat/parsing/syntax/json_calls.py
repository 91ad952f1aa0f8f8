"""Calls written as JSON objects: {"name":…,"arguments":…} and its variants, alone, in sequence or in an array.

One generation, one thread. Members may come in any order; a call starts once its name and the start of its
arguments are known, so arguments that come first are held back.
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
    """An array of calls, or calls in sequence; then one of the closing tags, if present."""
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
    """Whitespace and one of these; if it is missing, the whitespace is content."""
    if closes:
        yield from stream.blanks()
        n_before = len(stream.kept())
        yield from stream.skip(*closes)
        if len(stream.kept()) > n_before:
            stream.commit()


def series(
    stream: Stream, marker: str, opens: str, one: Callable[[Stream], Steps[None]], *closes: str
) -> Steps[None]:
    """Calls that each begin with `opens`, the first after this or after a marker of all; `one` reads the rest of each,
    and one of the closing tags may follow it."""
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
    """One object. A bare one, without a tag before it, may have only the members of a call."""
    yield from stream.expect("{")
    found = _Call(bare)
    yield from _members(stream, found, nested=False)
    _finish(stream, found)


def call_from(stream: Stream, key: str) -> Steps[None]:
    """The rest of a bare object after the colon of its first member."""
    found = _Call(True)
    yield from _members(stream, found, nested=False, key=key)
    _finish(stream, found)


def _finish(stream: Stream, found: _Call) -> None:
    if not found.begun:
        if found.bare and not (found.has_arguments or stream.tools.known):
            raise Malformed
        stream.begin(found.name, found.id)
        for piece in found.held or ["{}"]:
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


def _members(stream: Stream, found: _Call, nested: bool, key: str | None = None) -> Steps[None]:
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
        yield from _member(stream, found, key, nested)
        key = None
        yield from stream.blanks()
        if (yield from stream.first_of("}")):
            return
        yield from stream.expect(",")
        yield from stream.blanks()


def _member(stream: Stream, found: _Call, key: str, nested: bool) -> Steps[None]:
    first = yield from stream.peek()
    if key == "function" and first == "{" and not nested:
        stream.take(1)
        yield from _members(stream, found, nested=True)
    elif key in _NAMES and first == '"' and not found.name:
        found.name = yield from json_reader.whole_text(stream)
        if not stream.can_begin(found.name):
            raise Malformed
        if found.has_arguments:
            _begin(stream, found)
            stream.end_arguments()
    elif key in _ARGUMENTS and not found.has_arguments:
        yield from _arguments(stream, found, first)
    elif key in _IDS and first == '"':
        found.id = yield from json_reader.whole_text(stream)
    elif found.bare and key not in _ALL:
        raise Malformed
    else:
        yield from json_reader.value(stream, _ignore)


def _arguments(stream: Stream, found: _Call, first: str) -> Steps[None]:
    """An object, or a string that holds one, or null."""
    if not first or first not in '{"n':
        raise Malformed
    found.has_arguments = True
    if found.name:
        _begin(stream, found)
    sink = stream.arguments if found.begun else found.held.append
    if first == "{":
        yield from json_reader.value(stream, sink)
    elif first == "n":
        yield from stream.expect("null")
        sink("{}")
    elif (yield from stream.first_of('""')):
        sink("{}")
    else:
        yield from json_reader.text(stream, sink)
    if found.begun:
        stream.end_arguments()


def _begin(stream: Stream, found: _Call) -> None:
    stream.begin(found.name, found.id)
    found.begun = True
    for piece in found.held:
        stream.arguments(piece)


def _ignore(text: str) -> None:
    """Skips members that are not part of a call, such as "type"."""
