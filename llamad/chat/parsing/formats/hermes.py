"""Hermes, Qwen 2.5 and 3, and many others: an object between <tool_call> tags, a pair for each call."""

from __future__ import annotations

from collections.abc import Sequence

from llamad.chat.parsing.formats.base import CallFormat, Calls, Has, object_of
from llamad.chat.parsing.syntax.free_text import Mark, mark
from llamad.chat.parsing.syntax.grammar import BLANK, LINE, Grammar, Tool
from llamad.chat.parsing.syntax.parameter_calls import FUNCTION, tool_call
from llamad.chat.parsing.syntax.stream import Stream
from llamad.chat.parsing.syntax.text_reader import Steps
from llamad.chat.schema.expressions import EMPTY, Expr, Literal, seq

CALL, CALL_END = "<tool_call>", "</tool_call>"


class ToolCallTag(CallFormat):
    """Formats with <tool_call> tags. The parser takes whatever any of them writes there."""

    special: tuple[str, ...] = (CALL, CALL_END)
    markers = (CALL, "<seed:tool_call>", FUNCTION)

    def read(self, stream: Stream, marker: str) -> Steps[None]:
        yield from tool_call(stream, marker)

    def around(self, grammar: Grammar) -> tuple[Expr, Expr, Expr]:
        return EMPTY, LINE, EMPTY

    def triggers(self, names: Sequence[str]) -> list[Mark]:
        return [mark(CALL)]


class Hermes(ToolCallTag):
    name = "hermes"
    signs = (CALL,)

    @classmethod
    def is_in(cls, has: Has) -> bool:
        return super().is_in(has) and not has("<invoke name=")

    def written(self, calls: Calls) -> str:
        return "\n".join(f"{CALL}\n{object_of(*call)}\n{CALL_END}" for call in calls)

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        line = BLANK if grammar.is_free else LINE
        return seq(Literal(CALL), line, grammar.named(tool), line, Literal(CALL_END))
