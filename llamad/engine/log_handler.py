"""Sends the engine's log records to the front, which formats them, so that there is one log."""

from __future__ import annotations

import logging
import sys

from llamad.protocol.process import log_line


class FrontHandler(logging.Handler):
    """Writes to standard error, which the front reads."""

    def __init__(self) -> None:
        super().__init__()
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = self._formatter.format(record)  # with its traceback, if it has one
            sys.stderr.write(log_line(record.levelno, record.name, message))
            sys.stderr.flush()
        except OSError:
            pass  # the front is gone
