"""The state of one generation that is being parsed: its text, its deltas, and the progress of the current call.

Each generation is parsed by one thread. All formats work on a `Stream`; this file knows none of them.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from llamad.chat.parsing.syntax import json_reader
from llamad.chat.parsing.syntax.deltas import Delta, Output
from llamad.chat.parsing.syntax.text_reader import Malformed, Reader, Steps
from llamad.chat.parsing.syntax.tools import Tools

Reasoning = Literal["none", "auto", "deepseek", "deepseek-legacy"]


class Options(msgspec.Struct, frozen=True):
    tools: Tools
    tools_on: bool
    parallel: bool
    reasoning: Reasoning
    starts_in_reasoning: bool


class Stream(Reader):
    def __init__(self, options: Options) -> None:
        super().__init__()
        self.options = options
        self.tools = options.tools
        self.out = Output(options.tools_on)
        self._in_arguments = False
        self._in_call = False

    # Content and reasoning

    def content(self, text: str) -> None:
        self.out.content(text)
        self.commit()

    def release(self) -> None:
        """Pass on consumed text that turned out to be content."""
        if text := self.kept():
            self.content(text)

    def begin_thought(self) -> None:
        """Begin reasoning; the consumed text is the tag that opens it."""
        if self.options.reasoning in ("none", "deepseek-legacy"):
            self.out.content(self.kept())
        else:
            self.out.begin_thought()
        self.commit()

    def thought(self, text: str) -> None:
        if self.options.reasoning != "none":
            self.out.reasoning(text)
        if self.options.reasoning in ("none", "deepseek-legacy"):
            self.out.content(text)
        self.commit()

    def end_thought(self) -> None:
        """End reasoning; the consumed text is the tag that closes it."""
        if self.options.reasoning in ("none", "deepseek-legacy"):
            self.out.content(self.kept())
        self.out.end_thought()
        self.commit()

    # Calls

    def can_begin(self, name: str) -> bool:
        return self.tools.has(name) and (self.options.parallel or self.out.n_calls == 0)

    def begin(self, name: str, id: str = "") -> None:
        if not name or not self.can_begin(name):
            raise Malformed
        self.out.begin_call(name, id)
        self._in_call = self._in_arguments = True
        self.commit()

    def arguments(self, text: str) -> None:
        self.out.arguments(text)
        self.commit()

    def end_arguments(self) -> None:
        self._in_arguments = False

    def end(self) -> None:
        """End the call, which is complete; closing tags around it are optional."""
        self._in_call = self._in_arguments = False
        self.commit()

    def json_arguments(self, name: str, id: str = "") -> Steps[None]:
        """Read a call whose arguments come next, as a JSON object."""
        yield from self.blanks()
        if (yield from self.peek()) != "{":
            raise Malformed
        self.begin(name, id)
        yield from json_reader.value(self, self.arguments)
        self.end()

    def fail(self) -> None:
        """End a malformed call: the rest is text. If the text merely ended early, the call keeps what it has."""
        if self._in_call and self.ended and self.is_empty:
            if self._in_arguments:
                self.out.arguments(self.kept())
            self.commit()
        else:
            self.release()
        self._in_call = self._in_arguments = False


class OutputParser(Protocol):
    """Takes the generated text in pieces, split anywhere, and returns the deltas that are certain so far."""

    def feed(self, text: str) -> list[Delta]: ...
    def finish(self) -> list[Delta]: ...


class PlainParser:
    """A parser for which everything is content."""

    def feed(self, text: str) -> list[Delta]:
        return [Delta("content", text)] if text else []

    def finish(self) -> list[Delta]:
        return []


class StepParser:
    """A parser that runs the steps of a format, which end with the text."""

    def __init__(self, stream: Stream, steps: Steps[None]) -> None:
        self._stream = stream
        self._steps = steps
        next(steps, None)

    def feed(self, text: str) -> list[Delta]:
        if text and not self._stream.ended:
            self._stream.add(text)
            next(self._steps, None)
        return self._stream.out.take()

    def finish(self) -> list[Delta]:
        if not self._stream.ended:
            self._stream.ended = True
            next(self._steps, None)
            self._stream.out.finish()
        return self._stream.out.take()
