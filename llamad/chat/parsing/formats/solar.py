"""Solar Open: calls between special tokens, each with an id of ten characters."""

from __future__ import annotations

import string

from llamad.chat.parsing.formats.base import CallFormat, random_id
from llamad.chat.parsing.syntax.grammar import Grammar, Tool
from llamad.chat.parsing.syntax.json_calls import close, series
from llamad.chat.parsing.syntax.stream import Stream
from llamad.chat.parsing.syntax.text_reader import NAME, Steps
from llamad.chat.schema.expressions import EMPTY, Chars, Expr, Literal, normal, rep, seq

_CALLS = "<|tool_calls|>"
_CALL = "<|tool_call:begin|>"
_NAME = "<|tool_call:name|>"
_ARGUMENTS = "<|tool_call:args|>"
_CALL_END = "<|tool_call:end|>"
_CALLS_END = "<|calls|>"
_ID = rep(Chars(normal([(48, 57), (97, 122)])), 10, 10)


class Solar(CallFormat):
    name = "solar"
    signs = (_CALL,)
    think = ("<|think|>", "<|end|>")
    ignored = ("<|begin|>assistant", "<|content|>", "<|end|>", "<|flush|>")
    special = (_CALLS, _CALL, _NAME, _ARGUMENTS, _CALL_END, _CALLS_END)
    markers = (_CALLS, _CALL)
    may_be_bare = True

    def new_id(self, name: str, index: int) -> str:
        return random_id(string.ascii_lowercase + string.digits, 10)

    def read(self, stream: Stream, marker: str) -> Steps[None]:
        yield from series(stream, marker, _CALL, self._read_call, _CALL_END)
        yield from close(stream, _CALLS_END)

    def _read_call(self, stream: Stream) -> Steps[None]:
        id = yield from stream.run(NAME)
        yield from stream.expect(_NAME)
        name = yield from stream.name()
        yield from stream.expect(_ARGUMENTS)
        yield from stream.json_arguments(name, id)

    def around(self, grammar: Grammar) -> tuple[Expr, Expr, Expr]:
        return Literal(_CALLS), EMPTY, EMPTY

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        named = Literal(_NAME + tool.name + _ARGUMENTS)
        return seq(Literal(_CALL), _ID, named, grammar.arguments(tool), Literal(_CALL_END))
