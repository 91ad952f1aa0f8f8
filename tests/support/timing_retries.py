"""For tests of what the engine does by the time that things take. They assert no time, but a machine that stops for
some milliseconds lets it learn or do something else."""

from __future__ import annotations

import functools
from collections.abc import Callable

ATTEMPTS = 6


def learned(test: Callable[[], None]) -> Callable[[], None]:
    """The test has to hold once. A wrong engine never does, a disturbed one does the next time."""

    @functools.wraps(test)
    def attempts() -> None:
        for _ in range(ATTEMPTS - 1):
            try:
                return test()
            except AssertionError:
                pass
        return test()

    return attempts
