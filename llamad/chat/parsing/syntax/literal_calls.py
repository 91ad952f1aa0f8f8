"""Reads arguments that are literals of Python or of Gemma instead of JSON.

Each generation is parsed by one thread, without recursion. Arguments are converted to JSON as they arrive: strings are
streamed, words and numbers are held back until they are complete.
"""

from __future__ import annotations

import json
import re

import msgspec

from llamad.chat.parsing.syntax.json_reader import escaped
from llamad.chat.parsing.syntax.stream import Stream
from llamad.chat.parsing.syntax.text_reader import Malformed, Markers, Reader, Sink, Steps


class Dialect(msgspec.Struct, frozen=True):
    """How literals are written."""

    quotes: tuple[str, ...]
    has_escapes: bool
    has_bare_keys: bool


_PYTHON = Dialect(('"', "'"), has_escapes=True, has_bare_keys=False)
_CLOSERS = {"{": "}", "[": "]", "(": ")"}
_JSON = {"(": "[", ")": "]"}  # brackets that JSON writes differently
_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_SCALAR = re.compile(r"[\w.+-]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_BARE_KEY = re.compile(r"[^\s:,{}\[\]<>\"]+")
_PLAIN = {quote: re.compile(rf"[^{quote}\\]+") for quote in "\"'"}
_ESCAPES = {"n": "\\n", "t": "\\t", "r": "\\r", "b": "\\b", "f": "\\f", "\\": "\\\\", "\n": ""}
_HEX = {"x": 2, "u": 4}


def python_arguments(stream: Stream, name: str) -> Steps[None]:
    """Read the arguments after an opening parenthesis: key=value, ... up to the closing one."""
    stream.begin(name)
    lead = "{"
    yield from stream.blanks()
    while not (yield from stream.first_of(")")):
        if lead != "{":
            yield from stream.expect(",")
            yield from stream.blanks()
            if (yield from stream.first_of(")")):  # Python allows a trailing comma
                break
        key = yield from stream.name()
        yield from stream.blanks()
        yield from stream.expect("=")
        stream.arguments(f"{lead}{json.dumps(key, ensure_ascii=False)}: ")
        yield from literal(stream, stream.arguments, _PYTHON)
        yield from stream.blanks()
        lead = ", "
    stream.arguments("{}" if lead == "{" else "}")
    stream.end()


def literal(reader: Reader, sink: Sink, dialect: Dialect) -> Steps[None]:
    """Read a literal, and pass it on as JSON."""
    closers: list[str] = []
    while True:
        yield from reader.blanks()
        opened = yield from reader.first_of(*_CLOSERS, *dialect.quotes)
        if opened in _CLOSERS:
            sink(_JSON.get(opened, opened))
            closers.append(_CLOSERS[opened])
            yield from reader.blanks()
            if (yield from reader.peek()) != closers[-1]:
                if opened == "{":
                    yield from _key(reader, sink, dialect)
                continue
        elif opened:
            yield from _string(reader, sink, opened, dialect)
        else:
            yield from _scalar(reader, sink)
        while closers:
            yield from reader.blanks()
            if (yield from reader.first_of(closers[-1])):
                closer = closers.pop()
                sink(_JSON.get(closer, closer))
                continue
            yield from reader.expect(",")
            yield from reader.blanks()
            if (yield from reader.peek()) == closers[-1]:
                continue
            sink(", ")
            if closers[-1] == "}":
                yield from _key(reader, sink, dialect)
            break
        else:
            return


def _key(reader: Reader, sink: Sink, dialect: Dialect) -> Steps[None]:
    quote = yield from reader.first_of(*dialect.quotes)
    if quote:
        yield from _string(reader, sink, quote, dialect)
    else:
        key = (yield from reader.run(_BARE_KEY)) if dialect.has_bare_keys else ""
        if not key:
            raise Malformed
        sink(json.dumps(key, ensure_ascii=False))
    yield from reader.blanks()
    yield from reader.expect(":")
    sink(": ")


def _scalar(reader: Reader, sink: Sink) -> Steps[None]:
    word = yield from reader.run(_SCALAR)
    if reader.is_empty and reader.ended:
        raise Malformed
    if word in _WORDS:
        sink(_WORDS[word])
    elif _NUMBER.fullmatch(word):
        sink(word)
    else:
        raise Malformed


def _string(reader: Reader, sink: Sink, quote: str, dialect: Dialect) -> Steps[None]:
    sink('"')
    if dialect.has_escapes:
        yield from _with_escapes(reader, sink, quote)
    elif not (yield from reader.until(Markers((quote,)), lambda text: sink(escaped(text)))):
        raise Malformed
    sink('"')


def _with_escapes(reader: Reader, sink: Sink, quote: str) -> Steps[None]:
    while True:
        plain = reader.take_run(_PLAIN[quote])
        if plain:
            sink(escaped(plain))
        if not (next_char := (yield from reader.peek())):
            raise Malformed
        if next_char == quote:
            reader.take(1)
            return
        if next_char == "\\":
            yield from _escape(reader, sink)


def _escape(reader: Reader, sink: Sink) -> Steps[None]:
    n_digits = _HEX.get((yield from reader.ahead(2))[1:], 0)
    ahead = yield from reader.ahead(2 + n_digits)
    if len(ahead) < 2 + n_digits:
        reader.take(len(ahead))
        raise Malformed
    letter, digits = ahead[1], ahead[2:]
    if n_digits and all(digit in "0123456789abcdefABCDEF" for digit in digits):
        reader.take(len(ahead))
        sink("\\u" + digits.rjust(4, "0"))
    elif letter in "\"'":
        reader.take(2)
        sink(escaped(letter))
    elif letter in _ESCAPES:
        reader.take(2)
        sink(_ESCAPES[letter])
    else:
        reader.take(1)
        sink("\\\\")
