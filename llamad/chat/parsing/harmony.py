"""gpt-oss's format: messages, each with a header that names a channel and possibly a recipient.

One generation, one thread. The prompt ends after `<|start|>assistant`, so the text starts inside a header. Analysis
is reasoning, a message to a function is a call, everything else is content.
"""

from __future__ import annotations

import re

from llamad.chat.parsing.syntax.stream import Stream
from llamad.chat.parsing.syntax.text_reader import Malformed, Markers, Steps

START = "<|start|>"
CHANNEL = "<|channel|>"
MESSAGE = "<|message|>"
CONSTRAIN = "<|constrain|>"
END = "<|end|>"
_ENDS = (END, "<|call|>", "<|return|>")
_BODY_ENDS = Markers((*_ENDS, START, CHANNEL))
_STARTS = Markers((START, CHANNEL, MESSAGE))
_HEADER_CHARS = re.compile(r"[^<]+")
_LONGEST_HEADER = 512
_RECIPIENT = re.compile(r"to=([^\s<]+)")
_CHANNEL_NAME = re.compile(r"\w*")


def run(stream: Stream) -> Steps[None]:
    opened = ""
    if stream.options.starts_in_reasoning:
        if stream.options.reasoning == "deepseek-legacy":
            stream.content(CHANNEL + "analysis" + MESSAGE)
        opened = yield from _thought(stream)
    while True:
        if not opened:
            yield from stream.blanks()
            opened = yield from stream.first_of(START, CHANNEL, MESSAGE, "to=", "assistant" + CHANNEL)
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


def _message(stream: Stream, opened: str) -> Steps[str]:
    """Reads a message, from inside its header to its end; returns the marker that opens the next, if consumed."""
    if opened != MESSAGE:
        yield from _header(stream)
    header = stream.kept()
    recipients = [found for found in _RECIPIENT.findall(header) if found != "assistant"]
    if recipients:
        if not stream.options.tools_on or not recipients[-1].startswith("functions."):
            raise Malformed
        yield from stream.json_arguments(recipients[-1].removeprefix("functions."))
        yield from stream.blanks()
        if (yield from stream.first_of(*_ENDS)):
            stream.commit()
            return ""
        return (yield from _content(stream))
    _, _, after = header.rpartition(CHANNEL)
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
        tag = yield from stream.first_of(MESSAGE, CHANNEL, CONSTRAIN, START)
        if tag == MESSAGE:
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
