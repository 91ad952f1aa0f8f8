"""Kimi K2: calls between special tokens, each with an id that holds the function's name."""

from llamad.chat.parsing.syntax import Calls, Section, Steps, Stream, json_of
from llamad.chat.parsing.syntax.grammar import DIGITS, Grammar, Tool
from llamad.chat.schema.expressions import Expr, Literal, seq

_CALLS = "<|tool_calls_section_begin|>"
_CALL = "<|tool_call_begin|>"
_ARGUMENTS = "<|tool_call_argument_begin|>"
_CALL_END = "<|tool_call_end|>"
_CALLS_END = "<|tool_calls_section_end|>"


class KimiK2(Section):
    name = "kimi-k2"
    signs = (_CALLS,)
    special = (_CALLS, _CALL, _ARGUMENTS, _CALL_END, _CALLS_END)
    calls_tag = _CALLS
    calls_end = _CALLS_END
    call_tag = _CALL
    ends = (_CALL_END,)

    def written(self, calls: Calls) -> str:
        each = (
            _CALL + self.new_id(name, i) + _ARGUMENTS + json_of(arguments) + _CALL_END
            for i, (name, arguments) in enumerate(calls)
        )
        return _CALLS + "".join(each) + _CALLS_END

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
        id = seq(Literal(f"{_CALL}functions.{tool.name}:"), DIGITS)
        return seq(id, Literal(_ARGUMENTS), grammar.arguments(tool), Literal(_CALL_END))
