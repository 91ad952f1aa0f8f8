"""gpt-oss: messages, each with a header that names a channel and possibly a recipient.

The prompt ends after `<|start|>assistant`, so the text starts inside a header. Analysis is reasoning, a message to a
function is a call, everything else is content.
"""

import re

from llamad.chat.parsing.syntax import Malformed, Mark, Markers, Steps, Stream, mark
from llamad.chat.parsing.syntax.call_format import CallFormat, Calls, Format, Has, Think, json_of
from llamad.chat.parsing.syntax.grammar import Grammar, Tool
from llamad.chat.schema.expressions import Expr, Literal, Reference, alt, opt, seq

_START = "<|start|>"
_CHANNEL = "<|channel|>"
_MESSAGE = "<|message|>"
_CONSTRAIN = "<|constrain|>"
_END = "<|end|>"
_ENDS = (_END, "<|call|>", "<|return|>")
_BODY_ENDS = Markers((*_ENDS, _START, _CHANNEL))
_STARTS = Markers((_START, _CHANNEL, _MESSAGE))
_HEADER_CHARS = re.compile(r"[^<]+")
_LONGEST_HEADER = 512
_RECIPIENT = re.compile(r"to=([^\s<]+)")
_CHANNEL_NAME = re.compile(r"\w*")
_ANALYSIS = f"{_CHANNEL}analysis{_MESSAGE}"
_ASSISTANT = f"{_START}assistant"
_TO = " to=functions."
_HEADERS = (f"{_CHANNEL}commentary{_TO}", f"{_CHANNEL}analysis{_TO}", f"{_ASSISTANT}{_TO}")
_JSON = Literal(f" {_CONSTRAIN}json")


class GptOss(CallFormat):
    name = "gpt-oss"
    signs = (_CHANNEL, _MESSAGE)
    special = (_START, _CHANNEL, _MESSAGE, _CONSTRAIN, *_ENDS)
    has_several = False
    starts_answer = True
    answer_tag = f"{_CHANNEL}final{_MESSAGE}"
    before_value = seq(Literal(f"{_CHANNEL}final"), opt(_JSON), Literal(_MESSAGE))
    after_thought = Literal(_ASSISTANT)
    thought_tags = (_ANALYSIS, _END, _ASSISTANT)

    @classmethod
    def found_in(cls, has: Has, think: Think) -> Format:
        return Format(cls.name)

    def written(self, calls: Calls) -> str:
        return "".join(f"{_HEADERS[0]}{name}{_MESSAGE}{json_of(arguments)}" for name, arguments in calls)

    def parse(self, stream: Stream) -> Steps[None]:
        opened = ""
        if stream.options.starts_in_reasoning:
            if stream.options.reasoning == "deepseek-legacy":
                stream.content(_ANALYSIS)
            opened = yield from _thought(stream)
        while True:
            if not opened:
                yield from stream.blanks()
                opened = yield from stream.first_of(_START, _CHANNEL, _MESSAGE, "to=", "assistant" + _CHANNEL)
            if not opened:
                stream.release()
                opened = yield from stream.until(_STARTS, stream.content)
                if not opened:
                    return
            try:
                opened = yield from _message(stream, opened)
            except Malformed:
                stream.fail()
                opened = yield from _content(stream)

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        return seq(Literal(_HEADERS[0] + tool.name), opt(_JSON), Literal(_MESSAGE), grammar.arguments(tool))

    def calls(self, grammar: Grammar, tools: list[Tool]) -> Expr:
        if not grammar.is_free:
            return super().calls(grammar, tools)
        named = alt(_addressed(grammar, tool, f"{_CHANNEL}commentary") for tool in tools)
        return seq(Literal(_TO), named)

    def marked_calls(self, grammar: Grammar, tools: list[Tool]) -> Expr:
        usual = alt(map(Literal, _HEADERS[:2]))
        before = seq(usual, alt(_addressed(grammar, tool, "") for tool in tools))
        return alt([before, seq(Literal(_ASSISTANT), Reference("calls"))])

    def triggers(self, names: list[str]) -> list[Mark]:
        return [mark(_TO, at_start=True), *map(mark, _HEADERS)]


def _addressed(grammar: Grammar, tool: Tool, channel: str) -> Expr:
    """Return the expression for the rest of a message to a function, from its name on."""
    kind = opt(alt([_JSON, Literal(" json")]))
    return seq(Literal(tool.name + channel), kind, Literal(_MESSAGE), grammar.arguments(tool))


def _message(stream: Stream, opened: str) -> Steps[str]:
    """Read a message, from inside its header to its end; return the marker that opens the next, if it was consumed."""
    if opened != _MESSAGE:
        yield from _header(stream)
    header = stream.kept()
    recipients = [name for name in _RECIPIENT.findall(header) if name != "assistant"]
    if recipients:
        if not stream.options.tools_on or not recipients[-1].startswith("functions."):
            raise Malformed
        yield from stream.json_arguments(recipients[-1].removeprefix("functions."))
        yield from stream.blanks()
        if (yield from stream.first_of(*_ENDS)):
            stream.commit()
            return ""
        return (yield from _content(stream))
    _, _, after = header.rpartition(_CHANNEL)
    channel = _CHANNEL_NAME.match(after)
    if channel and channel.group() == "analysis":
        stream.begin_thought()
        return (yield from _thought(stream))
    stream.commit()
    return (yield from _content(stream))


def _header(stream: Stream) -> Steps[None]:
    left = _LONGEST_HEADER
    while left > 0:
        left -= len((yield from stream.run(_HEADER_CHARS, left)))
        tag = yield from stream.first_of(_MESSAGE, _CHANNEL, _CONSTRAIN, _START)
        if tag == _MESSAGE:
            return
        left -= len(tag)
        if not tag:
            break
    if stream.ended and stream.is_empty:
        stream.commit()  # an incomplete header is not text
    raise Malformed


def _thought(stream: Stream) -> Steps[str]:
    marker = yield from stream.until(_BODY_ENDS, stream.thought)
    if marker in _ENDS or not marker:
        stream.end_thought()
        return ""
    stream.out.end_thought()
    return marker


def _content(stream: Stream) -> Steps[str]:
    stream.release()
    marker = yield from stream.until(_BODY_ENDS, stream.content)
    if marker in _ENDS:
        stream.commit()
        return ""
    return marker
