"""Incremental JSON reader: validates each value and passes it on as written, piece by piece.

Each generation is parsed by one thread, without recursion. It repairs two things that models write and JSON forbids:
raw control characters in strings, and unknown escapes.
"""

from __future__ import annotations

import json
import re

from llamad.chat.parsing.syntax.text_reader import Malformed, Reader, Sink, Steps

_SPACE = re.compile(r"[ \t\r\n]+")
_MAY_BE_SPACE = " \t\r\n"  # also contains "", which means that no character has arrived yet
_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_NUMBER_CHARS = re.compile(r"[-+.0-9eE]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_HEX = frozenset("0123456789abcdefABCDEF")
_SHORT = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS = {"t": "true", "f": "false", "n": "null"}


def value(reader: Reader, sink: Sink) -> Steps[None]:
    """Read any value, from its first character to its last, without whitespace after it."""
    closers: list[str] = []
    while True:
        if reader.here() in _MAY_BE_SPACE:
            yield from _space(reader, sink)
        first = reader.here() or (yield from reader.peek())
        if first == "{" or first == "[":
            sink(reader.take(1))
            closers.append("}" if first == "{" else "]")
            if reader.here() in _MAY_BE_SPACE:
                yield from _space(reader, sink)
            if (yield from reader.peek()) != closers[-1]:
                if first == "{":
                    yield from _key(reader, sink)
                continue
        elif first == '"':
            yield from string(reader, sink)
        elif first in _WORDS:
            yield from reader.expect(_WORDS[first])
            sink(_WORDS[first])
        else:
            yield from _number(reader, sink)
        while closers:
            if reader.here() in _MAY_BE_SPACE:
                yield from _space(reader, sink)
            after = reader.here() or (yield from reader.peek())
            if after == closers[-1]:
                sink(reader.take(1))
                closers.pop()
            elif after == ",":
                sink(reader.take(1))
                if closers[-1] == "}":
                    if reader.here() in _MAY_BE_SPACE:
                        yield from _space(reader, sink)
                    yield from _key(reader, sink)
                break
            else:
                raise Malformed
        else:
            return


def string(reader: Reader, sink: Sink) -> Steps[None]:
    """Read a string, and pass it on as written, with its quotes."""
    yield from reader.expect('"')
    sink('"')
    while True:
        end = yield from _plain(reader, sink)
        if end == '"':
            sink(reader.take(1))
            return
        if end == "\\":
            yield from _kept_escape(reader, sink)
        else:
            sink(escaped(reader.take(1)))


def text(reader: Reader, sink: Sink) -> Steps[None]:
    """Read a string, and pass on its value, without quotes and escapes."""
    yield from reader.expect('"')
    while True:
        end = yield from _plain(reader, sink)
        if end == '"':
            reader.take(1)
            return
        if end == "\\":
            yield from _read_escape(reader, sink)
        else:
            sink(reader.take(1))


def whole_text(reader: Reader) -> Steps[str]:
    pieces: list[str] = []
    yield from text(reader, pieces.append)
    return "".join(pieces)


def escaped(plain: str) -> str:
    """Return a JSON string with this value, without its quotes."""
    return json.dumps(plain, ensure_ascii=False)[1:-1]


def _key(reader: Reader, sink: Sink) -> Steps[None]:
    yield from string(reader, sink)
    yield from _space(reader, sink)
    yield from reader.expect(":")
    sink(":")


def _space(reader: Reader, sink: Sink) -> Steps[None]:
    while True:
        blanks = reader.take_run(_SPACE)
        if blanks:
            sink(blanks)
        if not reader.is_empty or reader.ended:
            return
        yield


def _number(reader: Reader, sink: Sink) -> Steps[None]:
    """Read a number, which is held back until its end, because "1." alone is not a number."""
    pieces: list[str] = []
    while True:
        pieces.append(reader.take_run(_NUMBER_CHARS))
        if not reader.is_empty or reader.ended:
            break
        yield
    number = "".join(pieces)
    if (reader.is_empty and reader.ended) or not _NUMBER.fullmatch(number):
        raise Malformed
    sink(number)


def _plain(reader: Reader, sink: Sink) -> Steps[str]:
    """Pass on plain characters; return the next special one without consuming it."""
    while True:
        plain = reader.take_run(_PLAIN)
        if plain:
            sink(plain)
        if end := reader.here():
            return end
        if reader.ended:
            raise Malformed
        yield


def _kept_escape(reader: Reader, sink: Sink) -> Steps[None]:
    reader.take(1)
    letter = yield from reader.peek()
    if letter == "u":
        if (yield from _hex(reader)):
            sink("\\u" + reader.take(5)[1:])
        else:
            sink("\\\\")
    elif letter == "'":
        sink(reader.take(1))
    elif letter in _SHORT:
        sink("\\" + reader.take(1))
    elif letter:
        sink("\\\\")
    else:
        raise Malformed


def _read_escape(reader: Reader, sink: Sink) -> Steps[None]:
    reader.take(1)
    letter = yield from reader.peek()
    if letter == "u":
        digits = yield from _hex(reader)
        if not digits:
            sink("\\")
            return
        reader.take(5)
        code = int(digits, 16)
        if 0xD800 <= code < 0xDC00:
            low = yield from _low_half(reader)
            code = 0x10000 + (code - 0xD800) * 0x400 + low - 0xDC00 if low else 0xFFFD
        elif 0xDC00 <= code < 0xE000:
            code = 0xFFFD
        sink(chr(code))
    elif letter == "'":
        sink(reader.take(1))
    elif letter in _SHORT:
        sink(_SHORT[reader.take(1)])
    elif letter:
        sink("\\")
    else:
        raise Malformed


def _hex(reader: Reader) -> Steps[str]:
    """Return the four digits after the next `u` without consuming them, or "" if there are none."""
    digits = (yield from reader.ahead(5))[1:]
    if not _HEX.issuperset(digits):
        return ""
    if len(digits) < 4:
        reader.take(5)
        raise Malformed
    return digits


def _low_half(reader: Reader) -> Steps[int]:
    ahead = yield from reader.ahead(6)
    if len(ahead) == 6 and ahead.startswith("\\u") and _HEX.issuperset(ahead[2:]):
        code = int(ahead[2:], 16)
        if 0xDC00 <= code < 0xE000:
            reader.take(6)
            return code
    return 0
