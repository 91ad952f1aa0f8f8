"""Reads calls between <tool_call> tags, and parameters that are written one by one instead of as JSON.

Each generation is parsed by one thread. Parameters are converted to JSON as they arrive: one that can only be a string
is streamed; any other is held back until it is complete, because only then is it known whether it is JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from llamad.chat.parsing.syntax.json_calls import close, objects, series
from llamad.chat.parsing.syntax.json_reader import escaped
from llamad.chat.parsing.syntax.stream import Stream
from llamad.chat.parsing.syntax.text_reader import Malformed, Markers, Steps
from llamad.chat.parsing.syntax.tools import json_of

FUNCTION = "<function="
_FUNCTION_END = "</function>"
_PARAMETER_ENDS = Markers(("\n</parameter>", "</parameter>"))
_KEY_CHARS = re.compile(r"[^<>\r\n]+")
_CLOSES = ("</tool_call>", "</seed:tool_call>")
STRING = frozenset(("string",))

Key = tuple[str, frozenset[str], Markers]  # a parameter's name, its types, and the texts that end its value


def tool_call(stream: Stream, marker: str) -> Steps[None]:
    """Read calls after <tool_call>: JSON objects, a <function=…>, or GLM's name and keys, whichever comes."""
    if marker == FUNCTION:
        yield from _functions(stream)
        return
    yield from stream.blanks()
    first = yield from stream.peek()
    if first and first in "{[":
        yield from objects(stream, *_CLOSES)
    elif first == "<":
        yield from stream.expect(FUNCTION)
        yield from _functions(stream)
    else:
        yield from glm_call(stream)


def _functions(stream: Stream) -> Steps[None]:
    yield from series(stream, FUNCTION, FUNCTION, _function)
    yield from close(stream, *_CLOSES)


def _function(stream: Stream) -> Steps[None]:
    name = yield from stream.name()
    yield from stream.expect(">")
    yield from stream.blanks()
    if (yield from stream.peek()) == "{":
        yield from stream.json_arguments(name)
        yield from close(stream, _FUNCTION_END)
        return

    def key() -> Steps[Key]:
        key = yield from stream.run(_KEY_CHARS)
        yield from stream.expect(">")
        yield from stream.first_of("\n")
        return key, stream.tools.types(name, key), _PARAMETER_ENDS

    yield from parameters(stream, name, "<parameter=", key, _FUNCTION_END)


def glm_call(stream: Stream, suffix: str = "") -> Steps[None]:
    """Read a call: its name, then keys and values between tags whose names end with the suffix."""
    yield from stream.blanks()
    name = yield from stream.name()
    if suffix:
        yield from stream.first_of(f"<tool_sep{suffix}>")
    yield from stream.blanks()
    ends = Markers((f"</arg_value{suffix}>",))

    def key() -> Steps[Key]:
        key = yield from stream.run(_KEY_CHARS)
        yield from stream.expect(f"</arg_key{suffix}>")
        yield from stream.blanks()
        yield from stream.expect(f"<arg_value{suffix}>")
        return key, stream.tools.types(name, key), ends

    yield from parameters(stream, name, f"<arg_key{suffix}>", key, f"</tool_call{suffix}>")


def parameters(
    stream: Stream, name: str, key_tag: str, key: Callable[[], Steps[Key]], call_end: str
) -> Steps[None]:
    """Read the parameters of a call, which each begin with `key_tag`, and the end of the call. `key` reads the text
    between that tag and the value."""
    next_tag = yield from stream.first_of(key_tag, call_end)
    if not next_tag:
        raise Malformed
    stream.begin(name)
    lead = "{"
    while next_tag == key_tag:
        yield from _value(stream, lead, *(yield from key()))
        yield from stream.blanks()
        next_tag = yield from stream.first_of(key_tag, call_end)
        lead = ", "
    if not next_tag:
        raise Malformed
    stream.arguments("{}" if lead == "{" else "}")
    stream.end()


def _value(stream: Stream, lead: str, key: str, types: frozenset[str], ends: Markers) -> Steps[None]:
    """Read a parameter's text up to its end tag, and pass it on as a member of the arguments."""
    stream.arguments(f"{lead}{json.dumps(key, ensure_ascii=False)}: ")
    if types == STRING:
        stream.arguments('"')
        if not (yield from stream.until(ends, lambda text: stream.arguments(escaped(text)))):
            raise Malformed
        stream.arguments('"')
        return
    held: list[str] = []
    if not (yield from stream.until(ends, held.append)):
        raise Malformed
    stream.arguments(json_of("".join(held), types))
