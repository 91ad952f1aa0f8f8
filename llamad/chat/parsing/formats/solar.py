"""Solar Open: calls between special tokens, each with an id of ten characters."""

import string

from llamad.chat.parsing.syntax import NAME, Section, Steps, Stream, random_id
from llamad.chat.parsing.syntax.grammar import Grammar, Tool
from llamad.chat.schema.expressions import EMPTY, Chars, Expr, Literal, normal, rep, seq

_NAME = "<|tool_call:name|>"
_ARGUMENTS = "<|tool_call:args|>"
_ID = rep(Chars(normal([(48, 57), (97, 122)])), 10, 10)


class Solar(Section):
    name = "solar"
    think = ("<|think|>", "<|end|>")
    ignored = ("<|begin|>assistant", "<|content|>", "<|end|>", "<|flush|>")
    calls_tag = "<|tool_calls|>"
    calls_end = "<|calls|>"
    call_tag = "<|tool_call:begin|>"
    call_end = "<|tool_call:end|>"
    ends = (call_end,)
    signs = (call_tag,)
    special = (calls_tag, call_tag, _NAME, _ARGUMENTS, call_end, calls_end)
    around = (Literal(calls_tag), EMPTY, EMPTY)

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
        return seq(Literal(self.call_tag), _ID, named, grammar.arguments(tool), Literal(self.call_end))
