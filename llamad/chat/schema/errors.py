"""Schema errors, and the one place that decides between an error and a warning.

Any thread. Must not read a schema.
"""

from __future__ import annotations

import time

SHOWN = 200  # characters of a pointer in a message


class SchemaError(ValueError):
    """A schema that cannot be turned into a grammar. `keyword` is empty if it is about the schema as a whole."""

    def __init__(self, pointer: str, keyword: str, reason: str) -> None:
        self.pointer = pointer
        self.keyword = keyword
        self.reason = reason
        where = _one_line(pointer)
        super().__init__(f"{_one_line(keyword)} at {where}: {reason}" if keyword else f"{where}: {reason}")


class Report:
    """Collects what is dropped; if nothing may be dropped, the first is an error.

    Also counts the work done, so that no schema, however contrived, keeps a thread busy for long; a time limit stops
    what is not counted well enough.
    """

    MOST_WORK = 1_500_000
    MOST_SECONDS = 5.0

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self.warnings: list[str] = []
        self._work = 0
        self._t_end = time.monotonic() + self.MOST_SECONDS
        self._seen: set[tuple[str, str]] = set()

    def refuse(self, pointer: str, keyword: str, reason: str) -> None:
        """A constraint that cannot be honoured: raises if strict, else the caller drops it."""
        error = SchemaError(pointer, keyword, reason)
        if self.strict:
            raise error
        if (pointer, keyword) not in self._seen:
            self._seen.add((pointer, keyword))
            self.warnings.append(f"{error}; ignored")

    def spend(self, steps: int) -> None:
        self._work += steps
        if self._work > self.MOST_WORK or time.monotonic() > self._t_end:
            raise SchemaError("#", "", "the schema takes too long to convert; simplify it")


def _one_line(text: str) -> str:
    shown = text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in shown)
