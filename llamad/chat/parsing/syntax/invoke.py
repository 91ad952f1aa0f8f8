"""Calls as tags that name the function and each parameter. The formats differ only in spelling, and in whether a
parameter is marked as a string."""

import re

from llamad.chat.parsing.syntax.grammar import Grammar, Tags, Tool
from llamad.chat.parsing.syntax.parameter_calls import STRING, parameters
from llamad.chat.parsing.syntax.section import Section
from llamad.chat.parsing.syntax.stream import Stream
from llamad.chat.parsing.syntax.text_reader import Markers, Steps
from llamad.chat.schema.expressions import EMPTY, Expr, Literal, seq

_QUOTED = re.compile(r'[^"<>\r\n]+')
_ATTRIBUTES = re.compile(r"[^<>\r\n]+")
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
_RAW = "<![CDATA["


class Invoke(Section):
    """`call_tag` and `key_tag` end before the name; `tag_end` ends every tag that has attributes."""

    key_tag: str
    value_end: str
    tag_end = ">"
    type_attribute = ""  # the attribute with the type of a parameter
    string = ""  # the value of that attribute for a string
    line = "\n"
    after_name: Expr = EMPTY

    def read_call(self, stream: Stream) -> Steps[None]:
        name = yield from stream.run(_QUOTED)
        yield from self._read_tag_end(stream)
        yield from stream.blanks()

        def key() -> Steps[tuple[str, frozenset[str], Markers]]:
            key = yield from stream.run(_QUOTED)
            attributes = yield from self._read_tag_end(stream)
            said = attributes.get(self.type_attribute)
            types = stream.tools.types(name, key)
            if said is not None:
                types = STRING if said == self.string else types - STRING
            if (yield from stream.first_of(_RAW)):
                return key, STRING, Markers(("]]>" + self.value_end,))
            return key, types, Markers((self.value_end,))

        yield from parameters(stream, name, self.key_tag, key, self.call_end)

    def _read_tag_end(self, stream: Stream) -> Steps[dict[str, str]]:
        """Read a tag from the quote after its name to its end; return its attributes."""
        yield from stream.expect('"')
        text = yield from stream.run(_ATTRIBUTES)
        yield from stream.expect(self.tag_end)
        return dict(_ATTRIBUTE.findall(text))

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
