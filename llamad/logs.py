"""Owns the program's log: levels by verbosity, text or JSON lines, standard error or a file.

Set up once at start-up, on top of Python's logging. Must not be used from the engine thread.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Protocol, TextIO

from llamad.flags.settings import Settings

ACCESS = logging.getLogger("llamad.access")

_LEVELS = {0: logging.CRITICAL, 1: logging.ERROR, 2: logging.WARNING, 3: logging.INFO}
_COLORS = {logging.WARNING: "\033[33m", logging.ERROR: "\033[31m", logging.CRITICAL: "\033[31m"}


class _AccessFormatter(Protocol):
    def access(self, created: float, lines: Iterable[str]) -> str:
        """Formats access lines in bulk, each as format() would format an ACCESS record."""


class TextFormatter(logging.Formatter):
    """`2026-01-31 12:00:00.123 W engine: message`; parts by --log-timestamps and --log-prefix."""

    def __init__(self, timestamps: bool, prefix: bool, colors: bool) -> None:
        super().__init__()
        self._timestamps = timestamps
        self._prefix = prefix
        self._colors = colors

    def _head(self, created: float, level: str, name: str) -> str:
        head = ""
        if self._timestamps:
            stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(created))
            head = f"{stamp}.{int(created % 1 * 1000):03d} "
        if self._prefix:
            head += f"{level[0]} {name.removeprefix('llamad.')}: "
        return head

    def access(self, created: float, lines: Iterable[str]) -> str:
        head = self._head(created, "INFO", ACCESS.name)
        return "".join([f"{head}{line}\n" for line in lines])

    def format(self, record: logging.LogRecord) -> str:
        head = self._head(record.created, record.levelname, record.name)
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        color = _COLORS.get(record.levelno, "") if self._colors else ""
        return f"{head}{color}{text}{chr(27) + '[0m' if color else ''}"


class JsonFormatter(logging.Formatter):
    """One object per line."""

    @staticmethod
    def _row(created: float, level: str, name: str, message: str) -> dict[str, object]:
        return {"time": round(created, 3), "level": level.lower(), "name": name, "message": message}

    def access(self, created: float, lines: Iterable[str]) -> str:
        rows = [self._row(created, "INFO", ACCESS.name, line) for line in lines]
        return "".join([json.dumps(row, ensure_ascii=False) + "\n" for row in rows])

    def format(self, record: logging.LogRecord) -> str:
        row = self._row(record.created, record.levelname, record.name, record.getMessage())
        if record.exc_info:
            row["exception"] = self.formatException(record.exc_info)
        return json.dumps(row, ensure_ascii=False)


class AccessLog:
    """The access lines of one iteration of the event loop, written together at its end: with a record and a write per
    line, logging would cost more than the response."""

    def __init__(self) -> None:
        self._outputs: list[tuple[TextIO, _AccessFormatter]] = []
        self._lines: list[str] = []

    @property
    def has_outputs(self) -> bool:
        return bool(self._outputs)

    def add(self, stream: TextIO, formatter: _AccessFormatter) -> None:
        self._outputs.append((stream, formatter))

    def write(self, line: str) -> None:
        import asyncio  # late: imported elsewhere by then, and start-up has more urgent work

        if not self._lines:
            asyncio.get_running_loop().call_soon(self.flush)
        self._lines.append(line)

    def flush(self) -> None:
        lines, self._lines = self._lines, []
        if not lines:
            return
        now = time.time()
        for stream, formatter in self._outputs:
            try:
                stream.write(formatter.access(now, lines))
                stream.flush()
            except (OSError, ValueError):
                pass  # a failing log must not fail a request


_access = AccessLog()


def access_writer() -> Callable[[str], None] | None:
    """The sink of access lines; None if they are not logged."""
    if not ACCESS.isEnabledFor(logging.INFO):
        return None
    if _access.has_outputs:
        return _access.write
    return lambda line: ACCESS.info("%s", line)  # setup() was not called: logging is configured elsewhere


def test() -> None:
    """A line of each level, as --log-test asks."""
    log = logging.getLogger("llamad.test")
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
        log.log(level, "a line of level %s", logging.getLevelName(level).lower())
    flush()


def flush() -> None:
    """Write the last lines, before the process exits."""
    _access.flush()
    logging.shutdown()


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
        ACCESS.disabled = True
        return
    streams: list[TextIO] = [sys.stderr]
    if settings.log_file is not None:
        streams.append(_file(settings))
    for stream in streams:
        handler = logging.StreamHandler(stream)
        colors = settings.log_colors == "on" or (settings.log_colors == "auto" and stream.isatty())
        is_text = settings.log_format == "text" or (settings.log_format == "auto" and stream.isatty())
        formatter = (
            TextFormatter(settings.log_timestamps, settings.log_prefix, colors)
            if is_text
            else JsonFormatter()
        )
        handler.setFormatter(formatter)
        root.addHandler(handler)
        _access.add(stream, formatter)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
