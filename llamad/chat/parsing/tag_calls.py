"""Calls written as tags that name the function and each parameter: MiniMax, DeepSeek since V3.2, Kimi K3, MiniCPM5.

One generation, one thread. They differ only in spelling, and in whether a parameter is marked as a string.
"""

from __future__ import annotations

import re

import msgspec

from llamad.chat.parsing.parameter_calls import STRING, value
from llamad.chat.parsing.syntax.json_calls import close
from llamad.chat.parsing.syntax.stream import Stream
from llamad.chat.parsing.syntax.text_reader import Malformed, Markers, Steps


class Spelling(msgspec.Struct, frozen=True):
    """`call` and `key` end before the name; `tag_end` ends every tag that has attributes."""

    call: str
    call_end: str
    key: str
    value_end: str
    open: str = ""  # around all calls; "" if there is none
    close: str = ""
    tag_end: str = ">"
    type_attribute: str = ""  # of a parameter
    string: str = ""  # the attribute's value for a string
    line: str = "\n"  # between tags, as the model was trained
    special: tuple[str, ...] = ()


def _dsml(block: str) -> Spelling:
    return Spelling(
        call='<｜DSML｜invoke name="',
        call_end="</｜DSML｜invoke>",
        key='<｜DSML｜parameter name="',
        value_end="</｜DSML｜parameter>",
        open=f"<｜DSML｜{block}>",
        close=f"</｜DSML｜{block}>",
        type_attribute="string",
        string="true",
        special=("｜DSML｜",),
    )


SPELLINGS = {
    "minimax": Spelling(
        call='<invoke name="',
        call_end="</invoke>",
        key='<parameter name="',
        value_end="</parameter>",
        open="<minimax:tool_call>",
        close="</minimax:tool_call>",
        special=("<minimax:tool_call>", "</minimax:tool_call>"),
    ),
    "deepseek-v3.2": _dsml("function_calls"),
    "deepseek-v4": _dsml("tool_calls"),
    "minicpm5": Spelling(
        call='<function name="', call_end="</function>", key='<param name="', value_end="</param>", line=""
    ),
    "kimi-k3": Spelling(
        call='<|open|>call tool="',
        call_end="<|close|>call<|sep|>",
        key='<|open|>argument key="',
        value_end="<|close|>argument<|sep|>",
        open="<|open|>tools<|sep|>",
        close="<|close|>tools<|sep|>",
        tag_end="<|sep|>",
        type_attribute="type",
        string="string",
        line="",
        special=("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"),
    ),
}
_QUOTED = re.compile(r'[^"<>\r\n]+')
_ATTRIBUTES = re.compile(r"[^<>\r\n]+")
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
_RAW = "<![CDATA["


def invoked(stream: Stream, marker: str, spelling: Spelling) -> Steps[None]:
    """After the tag around all calls, or the start of one call."""
    if marker != spelling.call:
        yield from stream.blanks()
        yield from stream.expect(spelling.call)
    while True:
        yield from _call(stream, spelling)
        yield from stream.blanks()
        if not (yield from stream.first_of(spelling.call)):
            break
    if spelling.close:
        yield from close(stream, spelling.close)


def _call(stream: Stream, spelling: Spelling) -> Steps[None]:
    name = yield from stream.run(_QUOTED)
    yield from _tag_end(stream, spelling)
    yield from stream.blanks()
    next_tag = yield from stream.first_of(spelling.key, spelling.call_end)
    if not next_tag:
        raise Malformed
    stream.begin(name)
    lead = "{"
    while next_tag == spelling.key:
        key = yield from stream.run(_QUOTED)
        attributes = yield from _tag_end(stream, spelling)
        said = attributes.get(spelling.type_attribute)
        types = stream.tools.types(name, key)
        if said is not None:
            types = STRING if said == spelling.string else types - STRING
        ends = Markers((spelling.value_end,))
        if (yield from stream.first_of(_RAW)):
            types, ends = STRING, Markers(("]]>" + spelling.value_end,))
        yield from value(stream, lead, key, types, ends)
        yield from stream.blanks()
        next_tag = yield from stream.first_of(spelling.key, spelling.call_end)
        lead = ", "
    if not next_tag:
        raise Malformed
    stream.arguments("{}" if lead == "{" else "}")
    stream.end()


def _tag_end(stream: Stream, spelling: Spelling) -> Steps[dict[str, str]]:
    """The attributes of a tag, from the quote after its name to its end."""
    yield from stream.expect('"')
    text = yield from stream.run(_ATTRIBUTES)
    yield from stream.expect(spelling.tag_end)
    return dict(_ATTRIBUTE.findall(text))
