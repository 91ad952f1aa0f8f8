"""Hermes, Qwen 2.5 and 3, and many others: an object between <tool_call> tags, a pair for each call."""

from llamad.chat.parsing.syntax import FUNCTION, Mark, Steps, Stream, mark, tool_call
from llamad.chat.parsing.syntax.call_format import CallFormat, Calls, object_of
from llamad.chat.parsing.syntax.grammar import BLANK, LINE, Grammar, Tool
from llamad.chat.schema.expressions import EMPTY, Expr, Literal, seq

CALL, CALL_END = "<tool_call>", "</tool_call>"


class ToolCallTag(CallFormat):
    """Formats with <tool_call> tags. The parser accepts what any of them writes there."""

    special: tuple[str, ...] = (CALL, CALL_END)
    around = (EMPTY, LINE, EMPTY)
    markers = (CALL, "<seed:tool_call>", FUNCTION)

    def read(self, stream: Stream, marker: str) -> Steps[None]:
        yield from tool_call(stream, marker)

    def triggers(self, names: list[str]) -> list[Mark]:
        return [mark(CALL)]


class Hermes(ToolCallTag):
    name = "hermes"
    signs = (CALL,)
    no_sign = ("<invoke name=",)

    def written(self, calls: Calls) -> str:
        return "\n".join(f"{CALL}\n{object_of(*call)}\n{CALL_END}" for call in calls)

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        line = BLANK if grammar.is_free else LINE
        return seq(Literal(CALL), line, grammar.named(tool), line, Literal(CALL_END))
