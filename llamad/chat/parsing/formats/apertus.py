"""Apertus: an array of objects whose only key is the function's name."""

from llamad.chat.parsing.syntax import CallFormat, Steps, Stream, close, json_reader
from llamad.chat.parsing.syntax.grammar import COMMA, Grammar, Tool
from llamad.chat.schema.expressions import Expr, Literal

_CALLS, _CALLS_END = "<|tools_prefix|>", "<|tools_suffix|>"


class Apertus(CallFormat):
    name = "apertus"
    signs = (_CALLS,)
    special = (_CALLS, _CALLS_END)
    markers = (_CALLS,)
    unclosed_ends = (_CALLS_END,)
    around = (Literal(_CALLS + "["), COMMA, Literal("]" + _CALLS_END))

    def read(self, stream: Stream, marker: str) -> Steps[None]:
        yield from stream.blanks()
        yield from stream.expect("[")
        while True:
            yield from stream.blanks()
            yield from stream.expect("{")
            yield from stream.blanks()
            name = yield from json_reader.whole_text(stream)
            yield from stream.blanks()
            yield from stream.expect(":")
            yield from stream.json_arguments(name)
            yield from close(stream, "}")
            yield from stream.blanks()
            if not (yield from stream.first_of(",")):
                break
        yield from close(stream, "]")
        yield from close(stream, _CALLS_END)

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        return grammar.object((tool.quoted, grammar.arguments(tool)))
