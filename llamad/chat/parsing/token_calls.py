"""Calls delimited by special tokens: DeepSeek, Kimi, Mistral, Llama, Apertus, Solar, Functionary.

One generation, one thread. Each function reads what follows the marker in its name.
"""

from __future__ import annotations

from llamad.chat.parsing.literal_calls import python_arguments
from llamad.chat.parsing.syntax import json_reader
from llamad.chat.parsing.syntax.json_calls import close, objects
from llamad.chat.parsing.syntax.stream import Stream
from llamad.chat.parsing.syntax.text_reader import NAME, Malformed, Markers, Steps

DEEPSEEK_CALLS = (  # R1's distillations do not write their own tokens reliably
    "<｜tool▁calls▁begin｜>",
    "<｜tool_calls_begin｜>",
    "<｜tool calls begin｜>",
    "<｜tool\\_calls\\_begin｜>",
    "<｜tool▁calls｜>",
)
DEEPSEEK_CALL = "<｜tool▁call▁begin｜>"
_DEEPSEEK_SEP = "<｜tool▁sep｜>"
_DEEPSEEK_CALL_END = "<｜tool▁call▁end｜>"
_DEEPSEEK_CALLS_END = "<｜tool▁calls▁end｜>"
KIMI_CALLS = "<|tool_calls_section_begin|>"
KIMI_CALL = "<|tool_call_begin|>"
_KIMI_ARGUMENTS = "<|tool_call_argument_begin|>"
_KIMI_CALL_END = "<|tool_call_end|>"
_KIMI_CALLS_END = "<|tool_calls_section_end|>"
MISTRAL_CALLS = "[TOOL_CALLS]"
PYTHON_TAG = "<|python_tag|>"
APERTUS_CALLS = ("<|tools_prefix|>", "<|tools_suffix|>")
SOLAR_CALLS = "<|tool_calls|>"
SOLAR_CALL = "<|tool_call:begin|>"
SOLAR_NAME = "<|tool_call:name|>"
SOLAR_ARGUMENTS = "<|tool_call:args|>"
SOLAR_CALL_END = "<|tool_call:end|>"
RECIPIENT = ">>>"
_NOTHING = Markers(())


def deepseek(stream: Stream, marker: str) -> Steps[None]:
    if marker != DEEPSEEK_CALL:
        yield from stream.blanks()
        yield from stream.expect(DEEPSEEK_CALL)
    while True:
        yield from _deepseek_call(stream)
        yield from close(stream, _DEEPSEEK_CALL_END)
        yield from stream.blanks()
        if not (yield from stream.first_of(DEEPSEEK_CALL)):
            break
    yield from close(stream, _DEEPSEEK_CALLS_END)


def _deepseek_call(stream: Stream) -> Steps[None]:
    """`function<sep>name` and a fenced block, or since V3.1 `name<sep>` and the arguments."""
    name = yield from stream.name()
    yield from stream.expect(_DEEPSEEK_SEP)
    yield from stream.blanks()
    if name == "function" and (yield from stream.peek()) != "{":
        name = yield from stream.name()
        yield from stream.blanks()
    fenced = yield from stream.first_of("```")
    if fenced:
        yield from stream.first_of("json")
    yield from stream.json_arguments(name)
    if fenced:
        yield from close(stream, "```")


def kimi(stream: Stream, marker: str) -> Steps[None]:
    if marker != KIMI_CALL:
        yield from stream.blanks()
        yield from stream.expect(KIMI_CALL)
    while True:
        yield from stream.blanks()
        id = yield from stream.name()
        name, _, _ = id.removeprefix("functions.").partition(":")
        yield from stream.blanks()
        yield from stream.expect(_KIMI_ARGUMENTS)
        yield from stream.json_arguments(name, id)
        yield from close(stream, _KIMI_CALL_END)
        yield from stream.blanks()
        if not (yield from stream.first_of(KIMI_CALL)):
            break
    yield from close(stream, _KIMI_CALLS_END)


def mistral(stream: Stream, marker: str) -> Steps[None]:
    """An array of objects, or since Small 3.2 `name[CALL_ID]id[ARGS]` and the arguments."""
    yield from stream.blanks()
    first = yield from stream.peek()
    if first and first in "[{":
        yield from objects(stream)
        return
    name = yield from stream.name()
    id = ""
    if (yield from stream.first_of("[CALL_ID]")):
        id = yield from stream.name()
    yield from stream.first_of("[ARGS]")
    yield from stream.json_arguments(name, id)


def python_tag(stream: Stream, marker: str) -> Steps[None]:
    """Objects, a built-in tool's `name.call(key="value")`, or code for a function that takes some."""
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


def apertus(stream: Stream, marker: str) -> Steps[None]:
    """An array of objects whose only key is the function's name."""
    yield from stream.blanks()
    yield from stream.expect("[")
    while True:
        yield from stream.blanks()
        yield from stream.expect("{")
        yield from stream.blanks()
        name = yield from json_reader.whole_text(stream)
        yield from stream.blanks()
        yield from stream.expect(":")
        yield from stream.json_arguments(name)
        yield from close(stream, "}")
        yield from stream.blanks()
        if not (yield from stream.first_of(",")):
            break
    yield from close(stream, "]")
    yield from close(stream, APERTUS_CALLS[1])


def solar(stream: Stream, marker: str) -> Steps[None]:
    if marker != SOLAR_CALL:
        yield from stream.blanks()
        yield from stream.expect(SOLAR_CALL)
    while True:
        id = yield from stream.run(NAME)
        yield from stream.expect(SOLAR_NAME)
        name = yield from stream.name()
        yield from stream.expect(SOLAR_ARGUMENTS)
        yield from stream.json_arguments(name, id)
        yield from close(stream, SOLAR_CALL_END)
        yield from stream.blanks()
        if not (yield from stream.first_of(SOLAR_CALL)):
            break
    yield from close(stream, "<|calls|>")


def recipient(stream: Stream, marker: str) -> Steps[None]:
    """Functionary's recipient of the text, on a line of its own; `all` is the user."""
    name = yield from stream.name()
    yield from stream.expect("\n")
    if name == "all":
        stream.commit()
    elif stream.options.tools_on:
        yield from stream.json_arguments(name)
    else:
        raise Malformed
