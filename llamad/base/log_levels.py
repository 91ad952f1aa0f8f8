"""Maps --verbosity to the levels of Python's logging. Pure data."""

from __future__ import annotations

import logging

_LEVELS = {0: logging.CRITICAL, 1: logging.ERROR, 2: logging.WARNING, 3: logging.INFO}


def level_of(verbosity: int) -> int:
    return _LEVELS.get(verbosity, logging.DEBUG)
