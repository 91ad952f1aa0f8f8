"""Command R+: a plan, then an array of objects in a fenced block."""

from llamad.chat.parsing.syntax import BLANKS, CallFormat, Mark, Steps, Stream, mark, objects
from llamad.chat.parsing.syntax.grammar import BLANK, COMMA, Grammar, Tool
from llamad.chat.schema.expressions import Expr, Literal, seq

_FENCE = "```"


class CommandRPlus(CallFormat):
    name = "list"
    variant = "fenced"
    open = "Action:"
    signs = (open, '"tool_name"')
    no_sign = ("<|START_ACTION|>",)
    markers = (open,)
    around = (Literal("Action:\n```json\n["), COMMA, seq(BLANK, Literal("]\n```")))

    def read(self, stream: Stream, marker: str) -> Steps[None]:
        yield from stream.blanks()
        yield from stream.expect(_FENCE)
        yield from stream.first_of("json")
        yield from objects(stream, _FENCE)

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        return grammar.named(tool, "tool_name", "parameters")

    def triggers(self, names: list[str]) -> list[Mark]:
        return [mark(self.open, BLANKS, _FENCE)]
