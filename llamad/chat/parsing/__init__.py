"""Model output to reasoning, content and tool calls, as it is generated; and grammars that force tool calls.

Pure Python without state of its own: it knows neither HTTP nor the engine. Feeding a text in any pieces gives the
same deltas, joined, as feeding it whole. Nothing that may begin a marker is given out before it is sure.

A malformed call never raises. Until its name and the beginning of its arguments are read, nothing of a call is given
out, so one that fails before is content as a whole; one that fails later stays as far as it was streamed, and what
follows is content. A call of an unknown function, and a second call without `parallel`, count as malformed. A call
that the end of the text cuts off keeps what it has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llamad.chat.parsing import harmony
from llamad.chat.parsing import parser as tagged
from llamad.chat.parsing.call_text import is_written, written
from llamad.chat.parsing.deltas import Delta
from llamad.chat.parsing.formats import (
    Format,
    detect,
    ends_in_reasoning,
    new_call_id,
    thought_tags,
    without_thought,
)
from llamad.chat.parsing.stream import Options, OutputParser, PlainParser, Reasoning, StepParser, Stream
from llamad.chat.parsing.tool_grammar import ToolError, before_answer, tool_grammar
from llamad.chat.parsing.tools import Tools

__all__ = [
    "Delta",
    "Format",
    "OutputParser",
    "PlainParser",
    "Reasoning",
    "ToolError",
    "before_answer",
    "detect",
    "ends_in_reasoning",
    "is_written",
    "make_parser",
    "new_call_id",
    "thought_tags",
    "tool_grammar",
    "without_thought",
    "written",
]


def make_parser(
    format: Format,
    *,
    reasoning: Reasoning,
    tools_on: bool,
    parallel: bool,
    starts_in_reasoning: bool,
    tools: Iterable[Any] | None = None,
) -> OutputParser:
    """A parser for one generation.

    With `tools` (a request's), calls of other functions are text, and parameters that the format writes bare get
    the types of their schemas. `starts_in_reasoning`: the prompt ends inside a thought.
    """
    stream = Stream(Options(Tools(tools), tools_on, parallel, reasoning, starts_in_reasoning))
    steps = harmony.run(stream) if format.name == "gpt-oss" else tagged.run(stream, format)
    return StepParser(stream, steps)
