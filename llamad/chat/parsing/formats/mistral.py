"""Mistral: an array of objects after a special token; since Small 3.2 the token, a name and the arguments."""

import string

from llamad.chat.parsing.syntax import CallFormat, Steps, Stream, objects, random_id
from llamad.chat.parsing.syntax.grammar import COMMA, Grammar, Tool
from llamad.chat.schema.expressions import EMPTY, Chars, Expr, Literal, normal, rep, seq

_CALLS = "[TOOL_CALLS]"
_ARGUMENTS = "[ARGS]"
_CALL_ID = "[CALL_ID]"
_ID = rep(Chars(normal([(48, 57), (65, 90), (97, 122)])), 9, 9)


class Mistral(CallFormat):
    """The variants are "args" and "call_id", after the text between the name and the arguments."""

    name = "mistral"
    signs = (_CALLS,)
    variants = ((_CALL_ID, "call_id"), (_ARGUMENTS, "args"))
    special = (_CALLS, _ARGUMENTS, _CALL_ID)
    markers = (_CALLS,)

    def new_id(self, name: str, index: int) -> str:
        return random_id(string.ascii_letters + string.digits, 9)

    def read(self, stream: Stream, marker: str) -> Steps[None]:
        yield from stream.blanks()
        first = yield from stream.peek()
        if first and first in "[{":
            yield from objects(stream)
            return
        name = yield from stream.name()
        id = ""
        if (yield from stream.first_of(_CALL_ID)):
            id = yield from stream.name()
        yield from stream.first_of(_ARGUMENTS)
        yield from stream.json_arguments(name, id)

    @property
    def around(self) -> tuple[Expr, Expr, Expr]:
        if self.format.variant:
            return EMPTY, EMPTY, EMPTY
        return Literal(_CALLS + "["), COMMA, Literal("]")

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        arguments = grammar.arguments(tool)
        if not self.format.variant:
            named = (('"name"', Literal(tool.quoted)), ('"arguments"', arguments))
            return grammar.object(*named, ('"id"', seq(Literal('"'), _ID, Literal('"'))))
        id = seq(Literal(_CALL_ID), _ID) if self.format.variant == "call_id" else EMPTY
        return seq(Literal(_CALLS + tool.name), id, Literal(_ARGUMENTS), arguments)
