"""Kimi K2: calls between special tokens, each with an id that holds the function's name."""

from __future__ import annotations

from llamad.chat.parsing.formats.base import CallFormat, Calls, json_of
from llamad.chat.parsing.syntax.grammar import DIGITS, Grammar, Tool
from llamad.chat.parsing.syntax.json_calls import close, series
from llamad.chat.parsing.syntax.stream import Stream
from llamad.chat.parsing.syntax.text_reader import Steps
from llamad.chat.schema.expressions import EMPTY, Expr, Literal, seq

_CALLS = "<|tool_calls_section_begin|>"
_CALL = "<|tool_call_begin|>"
_ARGUMENTS = "<|tool_call_argument_begin|>"
_CALL_END = "<|tool_call_end|>"
_CALLS_END = "<|tool_calls_section_end|>"


class KimiK2(CallFormat):
    name = "kimi-k2"
    signs = (_CALLS,)
    special = (_CALLS, _CALL, _ARGUMENTS, _CALL_END, _CALLS_END)
    markers = (_CALLS, _CALL)
    may_be_bare = True

    def written(self, calls: Calls) -> str:
        each = (
            _CALL + self.new_id(name, i) + _ARGUMENTS + json_of(arguments) + _CALL_END
            for i, (name, arguments) in enumerate(calls)
        )
        return _CALLS + "".join(each) + _CALLS_END

    def new_id(self, name: str, index: int) -> str:
        return f"functions.{name}:{index}"

    def read(self, stream: Stream, marker: str) -> Steps[None]:
        yield from series(stream, marker, _CALL, self._read_call, _CALL_END)
        yield from close(stream, _CALLS_END)

    def _read_call(self, stream: Stream) -> Steps[None]:
        yield from stream.blanks()
        id = yield from stream.name()
        name, _, _ = id.removeprefix("functions.").partition(":")
        yield from stream.blanks()
        yield from stream.expect(_ARGUMENTS)
        yield from stream.json_arguments(name, id)

    def around(self, grammar: Grammar) -> tuple[Expr, Expr, Expr]:
        return Literal(_CALLS), EMPTY, Literal(_CALLS_END)

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        id = seq(Literal(f"{_CALL}functions.{tool.name}:"), DIGITS)
        return seq(id, Literal(_ARGUMENTS), grammar.arguments(tool), Literal(_CALL_END))
