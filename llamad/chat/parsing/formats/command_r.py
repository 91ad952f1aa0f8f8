"""Command R7B and Command A: an array of objects between special tokens, with ids that count from 0."""

from llamad.chat.parsing.formats.lists import OpenedList
from llamad.chat.parsing.syntax.grammar import DIGITS, Grammar, Tool
from llamad.chat.schema.expressions import Expr, Literal, seq


class CommandR(OpenedList):
    name = "command-r"
    open = "<|START_ACTION|>"
    close = "<|END_ACTION|>"
    signs = (open,)
    ignored = ("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>")
    special = ignored

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        return grammar.object(
            ('"tool_call_id"', seq(Literal('"'), DIGITS, Literal('"'))),
            ('"tool_name"', Literal(tool.quoted)),
            ('"parameters"', grammar.arguments(tool)),
        )
