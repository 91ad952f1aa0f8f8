"""DeepSeek up to V3.1, and R1's distillations: calls between special tokens."""

from typing import Any

from llamad.chat.parsing.syntax import Calls, Format, Section, Steps, Stream, close, json_of
from llamad.chat.parsing.syntax.grammar import LINE, Grammar, Tool
from llamad.chat.schema.expressions import EMPTY, Expr, Literal, seq

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


class DeepSeek(Section):
    """`function<sep>name` and a fenced block, or since V3.1 `name<sep>` and the arguments."""

    name = "deepseek"
    signs = _CALLS[:1]
    variants = (("```json", "fenced"),)
    special = (_CALLS[0], _CALL, _SEP, _CALL_END, _CALLS_END)
    openings = _CALLS[1:]
    calls_end = _CALLS_END
    call_tag = _CALL
    ends = (_CALL_END,)

    def __init__(self, format: Format) -> None:
        super().__init__(format)
        self.markers = (*_CALLS, _CALL)

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

    def read_call(self, stream: Stream) -> Steps[None]:
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

    @property
    def around(self) -> tuple[Expr, Expr, Expr]:
        return Literal(_CALLS[0]), LINE if self.format.variant else EMPTY, Literal(_CALLS_END)

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        before, after = self._parts(tool.name)
        return seq(Literal(before), grammar.arguments(tool), Literal(after))
