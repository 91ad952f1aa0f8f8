"""The format of models whose template has no calls; the prompt describes it. Also bare calls, which some models, such
as xLAM, write whatever the prompt says."""

from llamad.chat.parsing.syntax import Malformed, Steps, Stream, array, call, call_from, close, json_reader
from llamad.chat.parsing.syntax.call_format import CallFormat
from llamad.chat.parsing.syntax.free_text import BLANKS, Mark, mark, object_marks
from llamad.chat.parsing.syntax.grammar import BLANK, COMMA, Grammar, Tool
from llamad.chat.schema.expressions import EMPTY, Expr, Literal, Reference, alt, rep, seq

_KEYS = ('"tool_call"', '"tool_calls"')


class Generic(CallFormat):
    """{"tool_call":{…}}, {"tool_calls":[…]} or {"response":"…"}; or, if the functions are known, bare calls."""

    name = "generic"
    firsts = "{["
    starts_answer = True

    def read(self, stream: Stream, marker: str) -> Steps[None]:
        if marker == "[":
            yield from array(stream, bare=True)
            return
        stream.take(1)
        yield from stream.blanks()
        key = yield from json_reader.whole_text(stream)
        yield from stream.blanks()
        yield from stream.expect(":")
        yield from stream.blanks()
        if key == "tool_call":
            yield from call(stream)
        elif key == "tool_calls":
            yield from array(stream)
        elif key == "response":
            yield from _response(stream)
        elif stream.tools.known:
            yield from call_from(stream, key)
            return
        else:
            raise Malformed
        yield from close(stream, "}")

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        if grammar.several or grammar.is_free:
            return grammar.unmarked(tool)
        return grammar.object((_KEYS[0], grammar.named(tool)))

    def calls(self, grammar: Grammar, tools: list[Tool]) -> Expr:
        one = Reference("call")
        if not grammar.is_free and not grammar.several:
            return one
        several = seq(one, rep(seq(COMMA, one), 0, None) if grammar.several else EMPTY, BLANK, Literal("]"))
        if not grammar.is_free:
            return grammar.object((_KEYS[1], seq(Literal("["), several)))
        array = seq(Literal("["), BLANK, several)
        return alt([grammar.object((_KEYS[0], one)), grammar.object((_KEYS[1], array)), one, array])

    def triggers(self, names: list[str]) -> list[Mark]:
        keyed = [mark(BLANKS, "{", BLANKS, key, at_start=True) for key in _KEYS]
        return [*keyed, *object_marks(names, "", "[")]


def _response(stream: Stream) -> Steps[None]:
    if (yield from stream.peek()) == '"':
        stream.commit()
        yield from json_reader.text(stream, stream.content)
    else:
        yield from json_reader.value(stream, _nothing)
        raise Malformed


def _nothing(text: str) -> None:
    """Drop the text: a response that is not a string is malformed, and then passed on as written."""
