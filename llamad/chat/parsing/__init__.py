"""Splits model output into reasoning, content and tool calls as it is generated; makes grammars that force calls.

Pure Python, no global state; knows neither HTTP nor the engine. The result does not depend on how the text is split
into pieces: text that may be the start of a marker is held back until that is decided.

A malformed call never raises. A call is passed on as soon as its name and the start of its arguments are read. If it
turns out malformed before that, it is content; if later, it keeps what was streamed, and the rest is content. A call of
an unknown function is malformed, and so is a second call without `parallel`. A call that the end of the text cuts off
keeps what it has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llamad.chat.parsing.formats import Format, detect
from llamad.chat.parsing.syntax.call_format import new_call_id
from llamad.chat.parsing.syntax.deltas import Delta
from llamad.chat.parsing.syntax.grammar import ToolError
from llamad.chat.parsing.syntax.reasoning import ends_in_reasoning, without_thought
from llamad.chat.parsing.syntax.stream import (
    Options,
    OutputParser,
    PlainParser,
    Reasoning,
    StepParser,
    Stream,
)
from llamad.chat.parsing.syntax.tools import Tools
from llamad.chat.parsing.tool_grammar import before_answer, tool_grammar

__all__ = [
    "Delta",
    "Format",
    "OutputParser",
    "PlainParser",
    "Reasoning",
    "ToolError",
    "before_answer",
    "detect",
]
__all__ += ["ends_in_reasoning", "make_parser", "new_call_id", "tool_grammar", "without_thought"]


def make_parser(
    format: Format,
    *,
    reasoning: Reasoning,
    tools_on: bool,
    parallel: bool,
    starts_in_reasoning: bool,
    tools: Iterable[Any] | None = None,
) -> OutputParser:
    """Return a parser for one generation.

    If `tools` are given, calls of other functions are text, and parameters that the format writes without quotes get
    the types of their schemas. `starts_in_reasoning` means that the prompt ends inside reasoning.
    """
    stream = Stream(Options(Tools(tools), tools_on, parallel, reasoning, starts_in_reasoning))
    return StepParser(stream, format.calls.parse(stream))
