"""Command R+: a plan, then an array of objects in a fenced block."""

from __future__ import annotations

from collections.abc import Sequence

from llamad.chat.parsing.formats.base import CallFormat, Has
from llamad.chat.parsing.syntax.free_text import BLANKS, Mark, mark
from llamad.chat.parsing.syntax.grammar import BLANK, COMMA, Grammar, Tool
from llamad.chat.parsing.syntax.json_calls import objects
from llamad.chat.parsing.syntax.stream import Stream
from llamad.chat.parsing.syntax.text_reader import Steps
from llamad.chat.schema.expressions import Expr, Literal, seq

_FENCE = "```"


class CommandRPlus(CallFormat):
    name = "list"
    variant = "fenced"
    open = "Action:"
    signs = (open, '"tool_name"')
    markers = (open,)

    @classmethod
    def is_in(cls, has: Has) -> bool:
        return super().is_in(has) and not has("<|START_ACTION|>")

    def read(self, stream: Stream, marker: str) -> Steps[None]:
        yield from stream.blanks()
        yield from stream.expect(_FENCE)
        yield from stream.first_of("json")
        yield from objects(stream, _FENCE)

    def around(self, grammar: Grammar) -> tuple[Expr, Expr, Expr]:
        return Literal("Action:\n```json\n["), COMMA, seq(BLANK, Literal("]\n```"))

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        return grammar.named(tool, "tool_name", "parameters")

    def triggers(self, names: Sequence[str]) -> list[Mark]:
        return [mark(self.open, BLANKS, _FENCE)]
