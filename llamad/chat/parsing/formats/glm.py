"""GLM 4.5 and later: the name, then an <arg_key> and an <arg_value> for each argument, between <tool_call> tags."""

from __future__ import annotations

from llamad.chat.parsing.formats.hermes import CALL, CALL_END, ToolCallTag
from llamad.chat.parsing.syntax.grammar import Grammar, Tags, Tool
from llamad.chat.schema.expressions import Expr, Literal


class Glm(ToolCallTag):
    name = "glm"
    signs = ("<arg_key>",)
    special = (*ToolCallTag.special, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        tags = Tags(
            Literal(f"{CALL}{tool.name}\n"),
            Literal(CALL_END),
            lambda key, _: f"<arg_key>{key}</arg_key>\n<arg_value>",
            "</arg_value>",
        )
        return grammar.tagged(tool, tags)
