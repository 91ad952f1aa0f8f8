"""Solar Open: calls between special tokens, each with an id of ten characters."""

import string

from llamad.chat.parsing.syntax import NAME, Section, Steps, Stream, random_id
from llamad.chat.parsing.syntax.grammar import Grammar, Tool
from llamad.chat.schema.expressions import EMPTY, Chars, Expr, Literal, normal, rep, seq

_CALLS = "<|tool_calls|>"
_CALL = "<|tool_call:begin|>"
_NAME = "<|tool_call:name|>"
_ARGUMENTS = "<|tool_call:args|>"
_CALL_END = "<|tool_call:end|>"
_CALLS_END = "<|calls|>"
_ID = rep(Chars(normal([(48, 57), (97, 122)])), 10, 10)


class Solar(Section):
    name = "solar"
    signs = (_CALL,)
    think = ("<|think|>", "<|end|>")
    ignored = ("<|begin|>assistant", "<|content|>", "<|end|>", "<|flush|>")
    special = (_CALLS, _CALL, _NAME, _ARGUMENTS, _CALL_END, _CALLS_END)
    calls_tag = _CALLS
    calls_end = _CALLS_END
    call_tag = _CALL
    ends = (_CALL_END,)
    around = (Literal(_CALLS), EMPTY, EMPTY)

    def new_id(self, name: str, index: int) -> str:
        return random_id(string.ascii_lowercase + string.digits, 10)

    def read_call(self, stream: Stream) -> Steps[None]:
        id = yield from stream.run(NAME)
        yield from stream.expect(_NAME)
        name = yield from stream.name()
        yield from stream.expect(_ARGUMENTS)
        yield from stream.json_arguments(name, id)

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        named = Literal(_NAME + tool.name + _ARGUMENTS)
        return seq(Literal(_CALL), _ID, named, grammar.arguments(tool), Literal(_CALL_END))
