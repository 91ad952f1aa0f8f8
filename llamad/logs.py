"""Owns the program's log: levels by verbosity, text or JSON lines, standard error or a file.

Set up once at start; the handlers are Python's. Must not be used from the engine thread.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from typing import TextIO

from llamad.flags.settings import Settings

ACCESS = logging.getLogger("llamad.access")

_LEVELS = {0: logging.CRITICAL, 1: logging.ERROR, 2: logging.WARNING, 3: logging.INFO}
_COLORS = {logging.WARNING: "\033[33m", logging.ERROR: "\033[31m", logging.CRITICAL: "\033[31m"}


class TextFormatter(logging.Formatter):
    """`2026-01-31 12:00:00.123 W engine: message`; parts by --log-timestamps and --log-prefix."""

    def __init__(self, timestamps: bool, prefix: bool, colors: bool) -> None:
        super().__init__()
        self._timestamps = timestamps
        self._prefix = prefix
        self._colors = colors

    def format(self, record: logging.LogRecord) -> str:
        head = ""
        if self._timestamps:
            stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
            head = f"{stamp}.{int(record.msecs):03d} "
        if self._prefix:
            head += f"{record.levelname[0]} {record.name.removeprefix('llamad.')}: "
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        color = _COLORS.get(record.levelno, "") if self._colors else ""
        return f"{head}{color}{text}{chr(27) + '[0m' if color else ''}"


class JsonFormatter(logging.Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        row = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "name": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            row["exception"] = self.formatException(record.exc_info)
        return json.dumps(row, ensure_ascii=False)


def _file(settings: Settings) -> TextIO:
    path = settings.log_file
    assert path is not None
    if settings.log_file_mode == "new":
        root, dot, ending = path.rpartition(".")
        unique = f"{int(time.time())}-{os.getpid()}"
        path = f"{root}.{unique}.{ending}" if dot and "/" not in ending else f"{path}.{unique}.log"
    return open(path, "a" if settings.log_file_mode == "append" else "w", encoding="utf-8", buffering=1)


def setup(settings: Settings) -> None:
    """Configure logging as the flags say. Raises OSError when the log file cannot be opened."""
    root = logging.getLogger()
    root.handlers.clear()
    root.setLevel(_LEVELS.get(settings.verbosity, logging.DEBUG))
    if not settings.log_enabled:
        root.addHandler(logging.NullHandler())
        return
    streams: list[TextIO] = [sys.stderr]
    if settings.log_file is not None:
        streams.append(_file(settings))
    for stream in streams:
        handler = logging.StreamHandler(stream)
        if settings.log_format == "json":
            handler.setFormatter(JsonFormatter())
        else:
            colors = settings.log_colors == "on" or (settings.log_colors == "auto" and stream.isatty())
            handler.setFormatter(TextFormatter(settings.log_timestamps, settings.log_prefix, colors))
        root.addHandler(handler)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
