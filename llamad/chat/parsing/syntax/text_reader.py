"""Reads the text of one generation as it arrives, with generators that yield when they cannot decide yet.

Each generation is parsed by one thread. Decisions depend on the text alone, not on how it was split: a step consumes
what is certain and yields until more arrives. Text that was consumed but not passed on is kept, so that a malformed
call can be passed on as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]
Sink = Callable[[str], object]

LONGEST_NAME = 256
_BLANKS = re.compile(r"[ \t\r\n]+")
NAME = re.compile(r"[\w.:/@$-]+")


class Malformed(Exception):
    """The text does not match the format. This is caught where the call's marker was found."""


class Markers:
    """Texts to look for; none is a prefix of another."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(texts)
        self.longest = max(map(len, self.texts), default=0)
        self._pattern = re.compile("|".join(map(re.escape, self.texts)))
        self._firsts = {text[0] for text in self.texts}
        self._prefixes = {text[:n] for text in self.texts for n in range(1, len(text))}

    def find(self, text: str, at: int, ended: bool) -> tuple[int, str]:
        """Return where the first marker begins or may begin, and the marker itself, or "" while it is not certain."""
        if not self.texts:
            return len(text), ""
        hit = self._pattern.search(text, at)
        end = hit.start() if hit else len(text)
        if not ended:
            for start in range(max(at, len(text) - self.longest + 1), end):
                if text[start] in self._firsts and text[start:] in self._prefixes:
                    return start, ""
        return end, hit.group() if hit else ""


class Reader:
    def __init__(self) -> None:
        self.ended = False
        self._text = ""
        self._at = 0
        self._kept: list[str] = []

    def add(self, text: str) -> None:
        self._text = self._text[self._at :] + text
        self._at = 0

    @property
    def is_empty(self) -> bool:
        return self._at == len(self._text)

    def kept(self) -> str:
        """Return the text that was consumed since the last commit."""
        return "".join(self._kept)

    def commit(self) -> None:
        """Forget the consumed text: it has been passed on, or need not be."""
        self._kept.clear()

    def take(self, n: int) -> str:
        taken = self._text[self._at : self._at + n]
        self._at += len(taken)
        self._kept.append(taken)
        return taken

    def take_run(self, pattern: re.Pattern[str], most: int | None = None) -> str:
        """Consume and return the text that matches here and has arrived; more may follow."""
        end = len(self._text) if most is None else self._at + most
        hit = pattern.match(self._text, self._at, end)
        return self.take(hit.end() - self._at) if hit else ""

    def here(self) -> str:
        """Return the next character, or "" if none has arrived; for loops in which a generator is too expensive."""
        return self._text[self._at : self._at + 1]

    def peek(self) -> Steps[str]:
        """Return the next character without consuming it, or "" at the end of the text."""
        while self._at == len(self._text):
            if self.ended:
                return ""
            yield
        return self._text[self._at]

    def ahead(self, n: int) -> Steps[str]:
        """Return the next n characters without consuming them; fewer at the end of the text."""
        while len(self._text) - self._at < n and not self.ended:
            yield
        return self._text[self._at : self._at + n]

    def first_of(self, *texts: str) -> Steps[str]:
        """Consume and return whichever of these comes next, or return "" if none does."""
        longest = max(map(len, texts))
        while True:
            ahead = self._text[self._at : self._at + longest]
            for text in texts:
                if ahead.startswith(text):
                    return self.take(len(text))
            if self.ended or not any(text.startswith(ahead) for text in texts):
                return ""
            yield

    def expect(self, text: str) -> Steps[None]:
        if not (yield from self.first_of(text)):
            if self.ended:
                yield from self.skip(text)
            raise Malformed

    def skip(self, *texts: str) -> Steps[None]:
        """Consume one of these if it comes next; at the end of the text also the beginning of one."""
        if not (yield from self.first_of(*texts)) and self.ended:
            rest = self._text[self._at :]
            if any(text.startswith(rest) for text in texts):
                self.take(len(rest))

    def blanks(self) -> Steps[None]:
        while True:
            self.take_run(_BLANKS)
            if self._at < len(self._text) or self.ended:
                return
            yield

    def run(self, pattern: re.Pattern[str], most: int = LONGEST_NAME) -> Steps[str]:
        """Consume and return the next characters that match the pattern (one class, repeated), at most `most`."""
        pieces: list[str] = []
        left = most
        while True:
            piece = self.take_run(pattern, left)
            pieces.append(piece)
            left -= len(piece)
            if not left or self._at < len(self._text) or self.ended:
                return "".join(pieces)
            yield

    def name(self) -> Steps[str]:
        name = yield from self.run(NAME)
        if not name:
            raise Malformed
        return name

    def until(self, markers: Markers, sink: Sink) -> Steps[str]:
        """Pass the text before the first marker to the sink; consume and return the marker, or "" at the text's end."""
        while True:
            start, marker = markers.find(self._text, self._at, self.ended)
            if start > self._at:
                sink(self.take(start - self._at))
            if marker:
                return self.take(len(marker))
            if self.ended:
                return ""
            yield
