"""Llama 3.1 and later: an object that is the whole answer, or a call after <|python_tag|> or <function=name>."""

from llamad.chat.parsing.syntax import (
    FUNCTION,
    Stream,
    call,
    json_reader,
    objects,
    python_arguments,
    tool_call,
)
from llamad.chat.parsing.syntax.call_format import CallFormat
from llamad.chat.parsing.syntax.free_text import BLANKS, Mark, mark, object_marks
from llamad.chat.parsing.syntax.grammar import Grammar, Tool
from llamad.chat.parsing.syntax.text_reader import NAME, Malformed, Markers, Steps
from llamad.chat.schema.expressions import Expr, Literal, Reference, alt, seq

_PYTHON_TAG = "<|python_tag|>"
_NOTHING = Markers(())


class Llama3(CallFormat):
    name = "llama3"
    any_sign = (_PYTHON_TAG, "<|start_header_id|>ipython", "<|header_start|>ipython", FUNCTION)
    special = (_PYTHON_TAG,)
    markers = (_PYTHON_TAG, FUNCTION)
    firsts = "{"
    has_several = False
    starts_answer = True

    def read(self, stream: Stream, marker: str) -> Steps[None]:
        if marker == _PYTHON_TAG:
            yield from _python_tag(stream)
        elif marker == FUNCTION:
            yield from tool_call(stream, marker)
        else:
            yield from _object(stream)

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        return grammar.unmarked(tool, "parameters")

    def marked_calls(self, grammar: Grammar, tools: list[Tool]) -> Expr:
        tagged = [
            seq(Literal(f"{FUNCTION}{tool.name}>"), grammar.arguments(tool), Literal("</function>"))
            for tool in tools
        ]
        return alt([seq(Literal(_PYTHON_TAG), Reference("call")), *tagged])

    def triggers(self, names: list[str]) -> list[Mark]:
        tagged = [mark(f"{FUNCTION}{name}>") for name in names]
        return [mark(_PYTHON_TAG, BLANKS, "{"), *tagged, *object_marks(names)]


def _object(stream: Stream) -> Steps[None]:
    yield from call(stream, bare=True)
    yield from stream.blanks()
    yield from stream.first_of(";", ",")
    yield from stream.blanks()
    if (yield from stream.peek()) == "{":
        stream.commit()  # the text between two calls is not content


def _python_tag(stream: Stream) -> Steps[None]:
    """Read objects, a built-in tool's `name.call(key="value")`, or code for a function that takes code."""
    yield from stream.blanks()
    if (yield from stream.peek()) == "{":
        yield from objects(stream)
        return
    name = yield from stream.run(NAME)
    if name.endswith(".call") and (yield from stream.first_of("(")):
        yield from python_arguments(stream, name.removesuffix(".call"))
    elif stream.tools.python and stream.can_begin(stream.tools.python):
        stream.begin(stream.tools.python)
        stream.arguments('{"code": "' + json_reader.escaped(name))
        yield from stream.until(_NOTHING, lambda text: stream.arguments(json_reader.escaped(text)))
        stream.arguments('"}')
        stream.end()
    else:
        raise Malformed
