"""DeepSeek up to V3.1, and R1's distillations: calls between special tokens."""

from __future__ import annotations

from typing import Any

from llamad.chat.parsing.formats.base import CallFormat, Calls, Format, Has, Think, json_of
from llamad.chat.parsing.syntax.grammar import LINE, Grammar, Tool
from llamad.chat.parsing.syntax.json_calls import close, series
from llamad.chat.parsing.syntax.stream import Stream
from llamad.chat.parsing.syntax.text_reader import Steps
from llamad.chat.schema.expressions import EMPTY, Expr, Literal, alt, seq

_CALLS = (  # R1's distillations do not write their own tokens reliably
    "<｜tool▁calls▁begin｜>",
    "<｜tool_calls_begin｜>",
    "<｜tool calls begin｜>",
    "<｜tool\\_calls\\_begin｜>",
    "<｜tool▁calls｜>",
)
_CALL = "<｜tool▁call▁begin｜>"
_SEP = "<｜tool▁sep｜>"
_CALL_END = "<｜tool▁call▁end｜>"
_CALLS_END = "<｜tool▁calls▁end｜>"


class DeepSeek(CallFormat):
    """`function<sep>name` and a fenced block, or since V3.1 `name<sep>` and the arguments."""

    name = "deepseek"
    signs = _CALLS[:1]
    special = (_CALLS[0], _CALL, _SEP, _CALL_END, _CALLS_END)
    markers = (*_CALLS, _CALL)
    may_be_bare = True

    @classmethod
    def found_in(cls, has: Has, think: Think) -> Format:
        return Format(cls.name, "fenced" if has("```json") else "", think)

    def _parts(self, name: str) -> tuple[str, str]:
        """What stands around the arguments of a call."""
        before, after = (
            (f"function{_SEP}{name}\n```json\n", "\n```") if self.format.variant else (name + _SEP, "")
        )
        return _CALL + before, after + _CALL_END

    def written(self, calls: Calls) -> str:
        def one(name: str, arguments: Any) -> str:
            before, after = self._parts(name)
            return before + json_of(arguments) + after

        return _CALLS[0] + "\n".join(one(*call) for call in calls) + _CALLS_END

    def read(self, stream: Stream, marker: str) -> Steps[None]:
        yield from series(stream, marker, _CALL, self._read_call, _CALL_END)
        yield from close(stream, _CALLS_END)

    def _read_call(self, stream: Stream) -> Steps[None]:
        name = yield from stream.name()
        yield from stream.expect(_SEP)
        yield from stream.blanks()
        if name == "function" and (yield from stream.peek()) != "{":
            name = yield from stream.name()
            yield from stream.blanks()
        fenced = yield from stream.first_of("```")
        if fenced:
            yield from stream.first_of("json")
        yield from stream.json_arguments(name)
        if fenced:
            yield from close(stream, "```")

    def around(self, grammar: Grammar) -> tuple[Expr, Expr, Expr]:
        opens = alt(map(Literal, _CALLS)) if grammar.is_free else Literal(_CALLS[0])
        return opens, LINE if self.format.variant else EMPTY, Literal(_CALLS_END)

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        before, after = self._parts(tool.name)
        return seq(Literal(before), grammar.arguments(tool), Literal(after))
