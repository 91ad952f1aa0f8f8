"""The parser of every format but gpt-oss's: reasoning between tags, content, and calls announced by a marker.

One generation, one thread. Decides where a call may start and turns malformed ones into content; the syntax of
calls is read elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable

from llamad.chat.parsing.formats import Format
from llamad.chat.parsing.literal_calls import GEMMA_CALL, PYTHON_CALLS, gemma_call, python_calls
from llamad.chat.parsing.parameter_calls import FUNCTION, HUNYUAN, hunyuan, tool_call
from llamad.chat.parsing.syntax import json_reader
from llamad.chat.parsing.syntax.json_calls import array, call, call_from, close, objects
from llamad.chat.parsing.syntax.stream import Stream
from llamad.chat.parsing.syntax.text_reader import Malformed, Markers, Steps
from llamad.chat.parsing.tag_calls import SPELLINGS, Spelling, invoked
from llamad.chat.parsing.token_calls import (
    APERTUS_CALLS,
    DEEPSEEK_CALL,
    DEEPSEEK_CALLS,
    KIMI_CALL,
    KIMI_CALLS,
    MISTRAL_CALLS,
    PYTHON_TAG,
    RECIPIENT,
    SOLAR_CALL,
    SOLAR_CALLS,
    apertus,
    deepseek,
    kimi,
    mistral,
    python_tag,
    recipient,
    solar,
)

Handler = Callable[[Stream, str], Steps[None]]


def run(stream: Stream, format: Format) -> Steps[None]:
    on = stream.options.tools_on
    handlers = _handlers(format) if on else {}
    handlers.update(dict.fromkeys(format.ignored, _ignored))
    if format.name == "functionary":
        handlers[RECIPIENT] = recipient
    markers = Markers(handlers)
    bare, firsts = _BARE.get(format.name, (None, "")) if on else (None, "")
    if format.think and stream.options.starts_in_reasoning:
        if stream.options.reasoning == "deepseek-legacy":
            stream.content(format.think[0])
        yield from _thought(stream, format.think[1])
    if format.name == "functionary":  # the prompt ends where the recipient comes next
        yield from _try(stream, recipient, "")
    fresh = True  # only whitespace since the start, the last reasoning or the last call
    while True:
        if fresh:
            yield from stream.blanks()
            stream.release()
            if format.think and (yield from stream.first_of(format.think[0])):
                stream.begin_thought()
                yield from _thought(stream, format.think[1])
                continue
            first = (yield from stream.peek()) if bare else ""
            if bare and first and first in firsts:
                fresh = yield from _try(stream, bare, first)
                continue
        marker = yield from stream.until(markers, stream.content)
        if not marker:
            return
        fresh = yield from _try(stream, handlers[marker], marker)


def _try(stream: Stream, handler: Handler, marker: str) -> Steps[bool]:
    try:
        yield from handler(stream, marker)
    except Malformed:
        stream.fail()
        return False
    stream.release()
    return True


def _thought(stream: Stream, close: str) -> Steps[None]:
    yield from stream.until(Markers((close,)), stream.thought)
    stream.end_thought()


def _handlers(format: Format) -> dict[str, Handler]:
    match format.name:
        case "glm" if format.variant == "hunyuan":
            return dict.fromkeys((f"<tool_calls{HUNYUAN}>", f"<tool_call{HUNYUAN}>"), hunyuan)
        case "hermes" | "qwen3-coder" | "glm":
            return {"<tool_call>": tool_call, "<seed:tool_call>": tool_call, FUNCTION: tool_call}
        case "llama3":
            return {PYTHON_TAG: python_tag, FUNCTION: tool_call}
        case "mistral":
            return {MISTRAL_CALLS: mistral}
        case "deepseek":
            return dict.fromkeys((*DEEPSEEK_CALLS, DEEPSEEK_CALL), deepseek)
        case "kimi-k2":
            return dict.fromkeys((KIMI_CALLS, KIMI_CALL), kimi)
        case "granite":
            return dict.fromkeys(("<|tool_call|>", "<tool_call>"), _listed("</tool_call>"))
        case "list" if format.variant == "fenced":
            return {format.open: _fenced}
        case "list" | "command-r":
            return {format.open: _listed(format.close)}
        case "invoke":
            spelling = SPELLINGS[format.variant]
            return dict.fromkeys(filter(None, (spelling.open, spelling.call)), _invoked(spelling))
        case "gemma":
            return {GEMMA_CALL: gemma_call}
        case "python":
            return {PYTHON_CALLS[0]: python_calls}
        case "apertus":
            return {APERTUS_CALLS[0]: apertus}
        case "solar":
            return dict.fromkeys((SOLAR_CALLS, SOLAR_CALL), solar)
    return {}


def _listed(*closes: str) -> Handler:
    def handler(stream: Stream, marker: str) -> Steps[None]:
        yield from objects(stream, *filter(None, closes))

    return handler


def _invoked(spelling: Spelling) -> Handler:
    return lambda stream, marker: invoked(stream, marker, spelling)


def _fenced(stream: Stream, marker: str) -> Steps[None]:
    yield from stream.blanks()
    yield from stream.expect("```")
    yield from stream.first_of("json")
    yield from objects(stream, "```")


def _ignored(stream: Stream, marker: str) -> Steps[None]:
    """A tag around content."""
    stream.commit()
    yield from ()


def _bare(stream: Stream, marker: str) -> Steps[None]:
    yield from call(stream, bare=True)
    yield from stream.blanks()
    yield from stream.first_of(";", ",")
    yield from stream.blanks()
    if (yield from stream.peek()) == "{":
        stream.commit()  # what is between two calls is not content


def _generic(stream: Stream, marker: str) -> Steps[None]:
    """{"tool_call":{…}}, {"tool_calls":[…]} or {"response":"…"}; or, if the functions are known, bare calls, which some
    models (such as xLAM) write whatever the prompt says."""
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


def _response(stream: Stream) -> Steps[None]:
    if (yield from stream.peek()) == '"':
        stream.commit()
        yield from json_reader.text(stream, stream.content)
    else:
        yield from json_reader.value(stream, _nothing)
        raise Malformed


def _nothing(text: str) -> None:
    """A response that is not a string is passed on as written."""


_BARE: dict[str, tuple[Handler, str]] = {"llama3": (_bare, "{"), "generic": (_generic, "{[")}
