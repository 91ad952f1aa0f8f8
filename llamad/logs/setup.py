"""Sets up the program's log as the flags say, reopens the log file on SIGUSR1, and writes access lines in bulk.

It builds on Python's logging. Must not be used from the engine thread.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from llamad.flags.settings import DaemonSettings
from llamad.logs.format import ACCESS_NAME, Formatter, JsonFormatter, TextFormatter
from llamad.logs.output import FileOutput, Output, is_journal

if TYPE_CHECKING:
    from llamad.http.exchange import Exchange

ACCESS = logging.getLogger(ACCESS_NAME)
log = logging.getLogger("llamad.log")

_LEVELS = {0: logging.CRITICAL, 1: logging.ERROR, 2: logging.WARNING, 3: logging.INFO}


Line = Callable[["Exchange", float], str]


def level_of(verbosity: int) -> int:
    """Return the level of Python's logging for --verbosity."""
    return _LEVELS.get(verbosity, logging.DEBUG)


class AccessLog:
    """Collects the access lines of one iteration of the event loop and writes them together at its end. With a record
    and a write for each line, logging would cost more than the response."""

    def __init__(self, outputs: list[Output], text_line: Line, json_line: Line) -> None:
        import asyncio  # imported late, because start-up has more urgent work

        self._outputs = outputs
        self._loop = asyncio.get_running_loop
        # Only the formats that an output uses are made.
        self._text_line = text_line if not all(output.is_json for output in outputs) else None
        self._json_line = json_line if any(output.is_json for output in outputs) else None
        self._texts: list[str] = []
        self._rows: list[str] = []
        self._is_waiting = False

    def write(self, exchange: Exchange, seconds: float) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._loop().call_soon(self.flush)
        if self._text_line is not None:
            self._texts.append(self._text_line(exchange, seconds))
        if self._json_line is not None:
            self._rows.append(self._json_line(exchange, seconds))

    def flush(self) -> None:
        if not self._is_waiting:
            return
        self._is_waiting = False
        texts, rows, self._texts, self._rows = self._texts, self._rows, [], []
        now = time.time()
        for output in self._outputs:
            output.write_access(now, rows if output.is_json else texts)


_outputs: list[Output] = []
_access: AccessLog | None = None


def access_writer() -> Callable[[Exchange, float], None] | None:
    """Return the function that logs a finished request and its seconds, or None if requests are not logged."""
    global _access
    if not ACCESS.isEnabledFor(logging.INFO):
        return None
    from llamad.http.access_log import json_line, text_line

    if not _outputs:  # setup() was not called, so logging is configured elsewhere
        return lambda exchange, seconds: ACCESS.info("%s", text_line(exchange, seconds))
    _access = AccessLog(_outputs, text_line, json_line)
    return _access.write


def test() -> None:
    """Log a line of each level, for --log-test."""
    log = logging.getLogger("llamad.test")
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
        log.log(level, "a line of level %s", logging.getLevelName(level).lower())
    flush()


def flush() -> None:
    """Write the last lines, before the process exits."""
    if _access is not None:
        _access.flush()
    logging.shutdown()


def _file() -> FileOutput | None:
    return next((output for output in _outputs if isinstance(output, FileOutput)), None)


def reopen() -> None:
    """Continue in a new log file, after the old one was renamed; do nothing without --log-file. If the new one cannot
    be opened, raise OSError and continue in the old one."""
    file = _file()
    if file is not None:
        file.reopen()


def on_reopen_signal() -> None:
    """Handle SIGUSR1: reopen the log file."""
    if _file() is None:
        log.info("SIGUSR1 reopens the log file, but there is no --log-file")
        return
    try:
        reopen()
    except OSError as error:
        log.error("the log file cannot be reopened, so the old one is still used: %s", error)
    else:
        log.info("the log file was reopened")


def _file_path(settings: DaemonSettings) -> str:
    path = settings.log_file
    assert path is not None
    if settings.log_file_mode != "new":
        return path
    root, dot, ending = path.rpartition(".")
    unique = f"{int(time.time())}-{os.getpid()}"
    return f"{root}.{unique}.{ending}" if dot and "/" not in ending else f"{path}.{unique}.log"


def _formatter(settings: DaemonSettings, is_terminal: bool, in_journal: bool) -> Formatter:
    is_text = settings.log_format == "text" or (settings.log_format == "auto" and (is_terminal or in_journal))
    if not is_text:
        return JsonFormatter(in_journal)
    colors = settings.log_colors == "on" or (settings.log_colors == "auto" and is_terminal)
    # The journal adds its own timestamps.
    timestamps = settings.log_timestamps == "on" or (settings.log_timestamps == "auto" and not in_journal)
    return TextFormatter(timestamps, settings.log_prefix, colors, in_journal)


def _opened(settings: DaemonSettings) -> list[Output]:
    outputs: list[Output] = []
    if sys.stderr is not None:
        fd = sys.stderr.fileno()
        outputs.append(Output(fd, _formatter(settings, os.isatty(fd), is_journal(fd, os.environ))))
    if settings.log_file is not None:
        formatter = _formatter(settings, is_terminal=False, in_journal=False)
        is_fresh = settings.log_file_mode != "append"
        outputs.append(FileOutput(_file_path(settings), formatter, truncate=is_fresh))
    return outputs


def setup(settings: DaemonSettings) -> None:
    """Configure logging as the flags say. Raises OSError when the log file cannot be opened."""
    root = logging.getLogger()
    root.handlers.clear()
    root.setLevel(level_of(settings.verbosity))
    if not settings.log_enabled:
        root.addHandler(logging.NullHandler())
        ACCESS.disabled = True
        return
    _outputs[:] = _opened(settings)
    for output in _outputs:
        root.addHandler(output)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
