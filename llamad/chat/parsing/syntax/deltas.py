"""Collects a parser's output as deltas, and trims whitespace around content and reasoning.

One generation, one thread. Knows no format; only appends, so no text is copied twice.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["content", "reasoning", "tool_begin", "tool_arguments"]

BLANKS = " \t\r\n"


class Delta(msgspec.Struct):
    """A piece of the answer. `index` is the number of the tool call, from 0. Only a tool_begin has `name` and `id`.

    `id` is the model's own if it came before the arguments, else "".
    """

    kind: Kind
    text: str = ""
    index: int = 0
    name: str = ""
    id: str = ""


class Output:
    """Collects deltas. Whitespace before a call, after the last call, and around reasoning is not content; all other
    whitespace is."""

    def __init__(self, tools_on: bool) -> None:
        self.n_calls = 0
        self._tools_on = tools_on
        self._pending: list[tuple[Delta, list[str]]] = []
        self._blanks: list[str] = []  # content held back until something follows
        self._thought_blanks: list[str] = []
        self._has_content = False
        self._has_other = False  # there was a call or reasoning, after which whitespace is not content
        self._call_is_last = False
        self._is_thinking = False

    def take(self) -> list[Delta]:
        pending, self._pending = self._pending, []
        for delta, pieces in pending:
            delta.text = "".join(pieces)
        return [delta for delta, _ in pending]

    def content(self, text: str) -> None:
        if not self._has_content and self._has_other:
            text = text.lstrip(BLANKS)
        kept = text.rstrip(BLANKS) if self._tools_on or not self._has_content else text
        if kept:
            for piece in self._blanks:
                self._emit("content", piece)
            self._blanks.clear()
            self._emit("content", kept)
            self._has_content = True
            self._call_is_last = False
        if len(kept) < len(text):
            rest = text[len(kept) :]
            if self._tools_on or not self._has_content:
                self._blanks.append(rest)
            else:
                self._emit("content", rest)

    def reasoning(self, text: str) -> None:
        if not self._is_thinking:
            text = text.lstrip(BLANKS)
            if not text:
                return
            self._is_thinking = True
        kept = text.rstrip(BLANKS)
        if kept:
            for piece in self._thought_blanks:
                self._emit("reasoning", piece)
            self._thought_blanks.clear()
            self._emit("reasoning", kept)
        if len(kept) < len(text):
            self._thought_blanks.append(text[len(kept) :])

    def begin_thought(self) -> None:
        self._blanks.clear()

    def end_thought(self) -> None:
        self._thought_blanks.clear()
        self._is_thinking = False
        self._has_other = True

    def begin_call(self, name: str, id: str) -> None:
        self._blanks.clear()
        self._has_other = True
        self._call_is_last = True
        self._pending.append((Delta("tool_begin", index=self.n_calls, name=name, id=id), []))
        self.n_calls += 1

    def arguments(self, text: str) -> None:
        """Add text to the arguments of the last call."""
        self._emit("tool_arguments", text, self.n_calls - 1)

    def finish(self) -> None:
        if not self._call_is_last:
            for piece in self._blanks:
                self._emit("content", piece)
        self._blanks.clear()

    def _emit(self, kind: Kind, text: str, index: int = 0) -> None:
        if not text:
            return
        if self._pending:
            last, pieces = self._pending[-1]
            if last.kind == kind and last.index == index:
                pieces.append(text)
                return
        self._pending.append((Delta(kind, index=index), [text]))
