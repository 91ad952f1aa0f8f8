"""Functionary 3.2: each section of an answer begins with its recipient, on a line of its own; `all` is the user."""

from llamad.chat.parsing.syntax import CallFormat, Malformed, Mark, Steps, Stream, mark
from llamad.chat.parsing.syntax.grammar import Grammar, Tool
from llamad.chat.schema.expressions import Expr, Literal, Reference, seq

_RECIPIENT = ">>>"  # comes before each recipient but the first, where it is the end of the prompt


class Functionary(CallFormat):
    name = "functionary"
    signs = (">>>all", ">>>${recipient}")
    markers = (_RECIPIENT,)
    names_recipient = True
    has_several = False
    starts_answer = True

    def read(self, stream: Stream, marker: str) -> Steps[None]:
        name = yield from stream.name()
        yield from stream.expect("\n")
        if name == "all":
            stream.commit()
        elif stream.options.tools_on:
            yield from stream.json_arguments(name)
        else:
            raise Malformed

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        return seq(Literal(tool.name + "\n"), grammar.arguments(tool))

    def marked_calls(self, grammar: Grammar, tools: list[Tool]) -> Expr:
        return seq(Literal(_RECIPIENT), Reference("call"))

    def triggers(self, names: list[str]) -> list[Mark]:
        bare = [mark(f"{name}\n", at_start=True) for name in names]
        return [*bare, *(mark(f"{_RECIPIENT}{name}\n") for name in names)]
