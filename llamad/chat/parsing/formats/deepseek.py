"""DeepSeek up to V3.1, and R1's distillations: calls between special tokens."""

from typing import Any

from llamad.chat.parsing.syntax import Calls, Section, Steps, Stream, close, json_of
from llamad.chat.parsing.syntax.grammar import LINE, Grammar, Tool
from llamad.chat.schema.expressions import EMPTY, Expr, Literal, seq

_CALLS = (  # R1's distillations do not write their own tokens reliably
    "<｜tool▁calls▁begin｜>",
    "<｜tool_calls_begin｜>",
    "<｜tool calls begin｜>",
    "<｜tool\\_calls\\_begin｜>",
    "<｜tool▁calls｜>",
)
_SEP = "<｜tool▁sep｜>"


class DeepSeek(Section):
    """`function<sep>name` and a fenced block, or since V3.1 `name<sep>` and the arguments."""

    name = "deepseek"
    signs = _CALLS[:1]
    variants = (("```json", "fenced"),)
    calls_tag = _CALLS[0]
    openings = _CALLS[1:]
    calls_end = "<｜tool▁calls▁end｜>"
    call_tag = "<｜tool▁call▁begin｜>"
    call_end = "<｜tool▁call▁end｜>"
    ends = (call_end,)
    unclosed_ends = (call_end,)
    special = (calls_tag, call_tag, _SEP, call_end, calls_end)

    def _parts(self, name: str) -> tuple[str, str]:
        """Return the texts before and after the arguments of a call."""
        if self.format.variant:
            return f"{self.call_tag}function{_SEP}{name}\n```json\n", f"\n```{self.call_end}"
        return self.call_tag + name + _SEP, self.call_end

    def written(self, calls: Calls) -> str:
        def one(name: str, arguments: Any) -> str:
            before, after = self._parts(name)
            return before + json_of(arguments) + after

        return self.calls_tag + "\n".join(one(*call) for call in calls) + self.calls_end

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
        return Literal(self.calls_tag), LINE if self.format.variant else EMPTY, Literal(self.calls_end)

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        before, after = self._parts(tool.name)
        return seq(Literal(before), grammar.arguments(tool), Literal(after))
