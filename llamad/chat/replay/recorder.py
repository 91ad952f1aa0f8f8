"""A parser that also keeps what it has read, for the memory of turns.

One generation, one thread. It passes deltas on unchanged.
"""

from __future__ import annotations

from llamad.chat.parsing import Delta, OutputParser
from llamad.chat.replay.meaning import Said, call


class Recorder:
    """Feeds another parser. A call has the id that its delta has at the end, because the endpoint may give it one."""

    __slots__ = ("_arguments", "_calls", "_content", "_parser", "_reasoning")

    def __init__(self, parser: OutputParser) -> None:
        self._parser = parser
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[Delta] = []
        self._arguments: list[list[str]] = []

    def feed(self, text: str) -> list[Delta]:
        return self._kept(self._parser.feed(text))

    def finish(self) -> list[Delta]:
        return self._kept(self._parser.finish())

    def _kept(self, deltas: list[Delta]) -> list[Delta]:
        for delta in deltas:
            if delta.kind == "content":
                self._content.append(delta.text)
            elif delta.kind == "reasoning":
                self._reasoning.append(delta.text)
            elif delta.kind == "tool_begin":
                self._calls.append(delta)
                self._arguments.append([])
            else:
                self._arguments[delta.index].append(delta.text)
        return deltas

    def said(self) -> Said:
        calls = (
            call(begun.name, "".join(pieces))
            for begun, pieces in zip(self._calls, self._arguments, strict=True)
        )
        content = "".join(self._content)
        return Said((content,) if content else (), "".join(self._reasoning), tuple(calls))

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(one.id for one in self._calls if one.id)
