"""Qwen3-Coder and Seed-OSS: a <function=name> with a <parameter=key> for each argument, between <tool_call> tags."""

from llamad.chat.parsing.formats.hermes import ToolCallTag
from llamad.chat.parsing.syntax import FUNCTION, Mark, mark
from llamad.chat.parsing.syntax.grammar import Grammar, Tags, Tool
from llamad.chat.schema.expressions import Expr, Literal, opt, seq

_SEED_CALL = "<seed:tool_call>"


class Qwen3Coder(ToolCallTag):
    """Seed's variant has other tags around calls, and no line breaks around values."""

    name = "qwen3-coder"
    signs = (FUNCTION, "<parameter=")
    variants = ((_SEED_CALL, "seed"),)
    special = (*ToolCallTag.special, _SEED_CALL, "</seed:tool_call>")

    @property
    def _tag(self) -> str:
        return "seed:tool_call" if self.format.variant else "tool_call"

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        opens: Expr = Literal(f"<{self._tag}>\n")
        closes: Expr = Literal(f"\n</{self._tag}>")
        if grammar.is_free:  # models often leave out the tags around it
            opens, closes = opt(opens), opt(closes)
        line = "" if self.format.variant else "\n"
        tags = Tags(
            seq(opens, Literal(f"{FUNCTION}{tool.name}>\n")),
            seq(Literal("</function>"), closes),
            lambda key, _: f"<parameter={key}>{line}",
            f"{line}</parameter>",
        )
        return grammar.tagged(tool, tags)

    def triggers(self, names: list[str]) -> list[Mark]:
        return [mark(f"<{self._tag}>"), *(mark(f"{FUNCTION}{name}>") for name in names)]
