"""Calls as tags that name the function and each parameter. The families differ only in spelling, and in whether a
parameter is marked as a string."""

from __future__ import annotations

import re

from llamad.chat.parsing.formats.base import CallFormat, Format
from llamad.chat.parsing.syntax.grammar import LINE, Grammar, Tags, Tool
from llamad.chat.parsing.syntax.json_calls import close, series
from llamad.chat.parsing.syntax.parameter_calls import STRING, end, value
from llamad.chat.parsing.syntax.stream import Stream
from llamad.chat.parsing.syntax.text_reader import Malformed, Markers, Steps
from llamad.chat.schema.expressions import EMPTY, Expr, Literal, seq

_QUOTED = re.compile(r'[^"<>\r\n]+')
_ATTRIBUTES = re.compile(r"[^<>\r\n]+")
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
_RAW = "<![CDATA["


class Invoke(CallFormat):
    """`call_tag` and `key_tag` end before the name; `tag_end` ends every tag that has attributes."""

    call_tag: str
    call_end: str
    key_tag: str
    value_end: str
    calls_tag = ""  # around all calls; "" if there is none
    calls_end = ""
    tag_end = ">"
    type_attribute = ""  # of a parameter
    string = ""  # the attribute's value for a string
    line = "\n"  # between tags, as the model was trained
    before_calls: Expr = EMPTY
    after_name: Expr = EMPTY
    may_be_bare = True

    def __init__(self, format: Format) -> None:
        super().__init__(format)
        self.markers = tuple(filter(None, (self.calls_tag, self.call_tag)))

    def read(self, stream: Stream, marker: str) -> Steps[None]:
        yield from series(stream, marker, self.call_tag, self._read_call)
        if self.calls_end:
            yield from close(stream, self.calls_end)

    def _read_call(self, stream: Stream) -> Steps[None]:
        name = yield from stream.run(_QUOTED)
        yield from self._read_tag_end(stream)
        yield from stream.blanks()
        next_tag = yield from stream.first_of(self.key_tag, self.call_end)
        if not next_tag:
            raise Malformed
        stream.begin(name)
        lead = "{"
        while next_tag == self.key_tag:
            key = yield from stream.run(_QUOTED)
            attributes = yield from self._read_tag_end(stream)
            said = attributes.get(self.type_attribute)
            types = stream.tools.types(name, key)
            if said is not None:
                types = STRING if said == self.string else types - STRING
            ends = Markers((self.value_end,))
            if (yield from stream.first_of(_RAW)):
                types, ends = STRING, Markers(("]]>" + self.value_end,))
            yield from value(stream, lead, key, types, ends)
            yield from stream.blanks()
            next_tag = yield from stream.first_of(self.key_tag, self.call_end)
            lead = ", "
        end(stream, lead, next_tag)

    def _read_tag_end(self, stream: Stream) -> Steps[dict[str, str]]:
        """The attributes of a tag, from the quote after its name to its end."""
        yield from stream.expect('"')
        text = yield from stream.run(_ATTRIBUTES)
        yield from stream.expect(self.tag_end)
        return dict(_ATTRIBUTE.findall(text))

    def around(self, grammar: Grammar) -> tuple[Expr, Expr, Expr]:
        if not self.calls_tag:
            return EMPTY, LINE, EMPTY
        line = self.line
        opens = seq(self.before_calls, Literal(self.calls_tag + line))
        return opens, Literal(line), Literal(line + self.calls_end)

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        opens = seq(
            Literal(f'{self.call_tag}{tool.name}"'), self.after_name, Literal(self.tag_end + self.line)
        )
        typed = bool(self.type_attribute)
        tags = Tags(opens, Literal(self.call_end), self._key, self.value_end, self.line, typed)
        return grammar.tagged(tool, tags)

    def _key(self, key: str, kind: str) -> str:
        if self.string == "true":
            kind = "true" if kind == "string" else "false"
        attribute = f' {self.type_attribute}="{kind}"' if self.type_attribute else ""
        return f'{self.key_tag}{key}"{attribute}{self.tag_end}'
