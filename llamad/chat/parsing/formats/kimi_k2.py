"""Kimi K2: calls between special tokens, each with an id that contains the function's name."""

from llamad.chat.parsing.syntax import Calls, Section, Steps, Stream, json_of
from llamad.chat.parsing.syntax.grammar import DIGITS, Grammar, Tool
from llamad.chat.schema.expressions import Expr, Literal, seq

_ARGUMENTS = "<|tool_call_argument_begin|>"


class KimiK2(Section):
    name = "kimi-k2"
    calls_tag = "<|tool_calls_section_begin|>"
    calls_end = "<|tool_calls_section_end|>"
    call_tag = "<|tool_call_begin|>"
    call_end = "<|tool_call_end|>"
    ends = (call_end,)
    signs = (calls_tag,)
    special = (calls_tag, call_tag, _ARGUMENTS, call_end, calls_end)

    def written(self, calls: Calls) -> str:
        each = (
            self.call_tag + self.new_id(name, i) + _ARGUMENTS + json_of(arguments) + self.call_end
            for i, (name, arguments) in enumerate(calls)
        )
        return self.calls_tag + "".join(each) + self.calls_end

    def new_id(self, name: str, index: int) -> str:
        return f"functions.{name}:{index}"

    def read_call(self, stream: Stream) -> Steps[None]:
        yield from stream.blanks()
        id = yield from stream.name()
        name, _, _ = id.removeprefix("functions.").partition(":")
        yield from stream.blanks()
        yield from stream.expect(_ARGUMENTS)
        yield from stream.json_arguments(name, id)

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        id = seq(Literal(f"{self.call_tag}functions.{tool.name}:"), DIGITS)
        return seq(id, Literal(_ARGUMENTS), grammar.arguments(tool), Literal(self.call_end))
