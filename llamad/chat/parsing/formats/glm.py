"""GLM 4.5 and later: the name, then an <arg_key> and an <arg_value> for each argument, between <tool_call> tags."""

from llamad.chat.parsing.formats.hermes import CALL, CALL_END, ToolCallTag
from llamad.chat.parsing.syntax.grammar import Grammar, Tags, Tool
from llamad.chat.schema.expressions import Expr, Literal


class Glm(ToolCallTag):
    name = "glm"
    signs = ("<arg_key>",)
    special = (*ToolCallTag.special, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        return grammar.tagged(tool, glm_tags(f"{CALL}{tool.name}\n", CALL_END))


def glm_tags(opens: str, closes: str, suffix: str = "") -> Tags:
    """Return the tags of a call; their names end with the suffix."""
    key = f"<arg_key{suffix}>{{}}</arg_key{suffix}>\n<arg_value{suffix}>"
    after = f"</arg_value{suffix}>"
    return Tags(Literal(opens), Literal(closes), lambda name, _: key.format(name), after)
