"""LFM2: Python calls in a list, between special tokens."""

from typing import Any

from llamad.chat.parsing.syntax import CallFormat, Calls, Steps, Stream, close, objects, python_arguments
from llamad.chat.parsing.syntax.grammar import Grammar, Tool
from llamad.chat.parsing.syntax.tools import types_of
from llamad.chat.schema.expressions import Expr, Literal, alt, seq

_CALLS, _CALLS_END = "<|tool_call_start|>", "<|tool_call_end|>"


class Lfm2(CallFormat):
    name = "python"
    any_sign = (_CALLS, "<|tool_list_start|>", "List of tools: ")
    special = (_CALLS, _CALLS_END)
    markers = (_CALLS,)
    around = (Literal(_CALLS + "["), Literal(", "), Literal("]" + _CALLS_END))

    def written(self, calls: Calls) -> str:
        return f"{_CALLS}[{', '.join(_written(*call) for call in calls)}]{_CALLS_END}"

    def read(self, stream: Stream, marker: str) -> Steps[None]:
        """Read [name(key=value, ...), ...], or the same as JSON, then the closing tag."""
        yield from stream.blanks()
        is_list = bool((yield from stream.first_of("[")))
        if is_list:
            yield from stream.blanks()
        if (yield from stream.peek()) == "{":
            yield from objects(stream)
        else:
            while True:
                name = yield from stream.name()
                yield from stream.expect("(")
                yield from python_arguments(stream, name)
                yield from stream.blanks()
                if not (is_list and (yield from stream.first_of(","))):
                    break
                yield from stream.blanks()
        if is_list:
            yield from close(stream, "]")
        yield from close(stream, _CALLS_END)

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        return seq(Literal(f"{tool.name}("), grammar.listed(tool, ", ", "=", _value), Literal(")"))


def _value(grammar: Grammar, tool: Tool, rule: str, key: str, schema: Any) -> Expr:
    if types_of(schema, tool.schema) == {"boolean"}:
        return alt([Literal("True"), Literal("False")])
    return grammar.argument(tool, rule, key)


def _written(name: str, arguments: Any) -> str:
    """Return a call as text. Arguments that are not a JSON object stay as they were sent."""
    if not isinstance(arguments, dict):
        return f"{name}({arguments})"
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
