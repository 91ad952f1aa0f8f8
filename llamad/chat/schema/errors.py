"""Schema errors, and the class that decides between an error and a warning.

Any thread. Must not read a schema.
"""

from __future__ import annotations

import time

SHOWN = 200  # characters of a pointer in a message


class SchemaError(ValueError):
    """The schema cannot be turned into a grammar. `keyword` is empty if the error is about the schema as a whole."""

    def __init__(self, pointer: str, keyword: str, reason: str) -> None:
        self.pointer = pointer
        self.keyword = keyword
        self.reason = reason
        where = _one_line(pointer)
        super().__init__(f"{_one_line(keyword)} at {where}: {reason}" if keyword else f"{where}: {reason}")


class Report:
    """Collects warnings about dropped constraints; if nothing may be dropped, the first one is an error.

    It also counts the work, so that no schema, however contrived, keeps a thread busy for long. A time limit stops work
    that is not counted well enough.
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
        """Report a constraint that cannot be honoured: raise if strict, else warn, and the caller drops it."""
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
