"""Reads access lines as awk would: words at the end are name=value."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

WAIT_SECONDS = 60


def words(line: str) -> dict[str, str]:
    """The details and the error's message of a text line."""
    line, _, error = line.partition(' error="')
    found = dict(word.split("=", 1) for word in line.split() if "=" in word and '"' not in word)
    return found | ({"error": error.rstrip('"')} if error else {})


def words_of(id: str, lines: Callable[[], Iterable[str]]) -> dict[str, str]:
    """Those of the request with this id, once it is logged."""
    t_end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < t_end:
        for line in list(lines()):
            if f" {id} " in line and '" ' in line:
                return words(line)
        time.sleep(0.002)
    raise AssertionError(f"the request {id} was not logged")
