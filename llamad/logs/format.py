"""The format of log lines: text or JSON, with priorities for systemd's journal if it reads them.

Pure functions; any thread. In JSON, a record is one line. In text, its further lines are indented, so that text which a
record quotes cannot be taken for another record.
"""

from __future__ import annotations

import json
import logging
import time
from abc import ABC, abstractmethod

ACCESS_NAME = "llamad.access"

_COLORS = {logging.WARNING: "\033[33m", logging.ERROR: "\033[31m", logging.CRITICAL: "\033[31m"}
_PRIORITIES = {logging.CRITICAL: 2, logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6, logging.DEBUG: 7}
_NO_COLOR = "\033[0m"
# Control characters are escaped, because a terminal obeys them, and a model's file may contain any name.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


class Formatter(logging.Formatter, ABC):
    """Formats the lines of one destination. With `in_journal` each line begins with its priority."""

    is_json = False

    def __init__(self, in_journal: bool) -> None:
        super().__init__()
        self._in_journal = in_journal

    def _priority(self, level: int) -> str:
        return f"<{_PRIORITIES.get(level, 7)}>" if self._in_journal else ""

    @abstractmethod
    def access(self, created: float, lines: list[str]) -> str:
        """Format access lines in bulk. Each is a text or, with is_json, the fields of an object."""


class TextFormatter(Formatter):
    """Lines such as `2026-01-31 12:00:00.123 W engine: message`; --log-timestamps and --log-prefix turn parts off."""

    def __init__(self, timestamps: bool, prefix: bool, colors: bool, in_journal: bool = False) -> None:
        super().__init__(in_journal)
        self._timestamps = timestamps
        self._prefix = prefix
        self._colors = colors

    def _head(self, created: float, level: int, name: str) -> str:
        head = self._priority(level)
        if self._timestamps:
            stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(created))
            head += f"{stamp}.{int(created % 1 * 1000):03d} "
        if self._prefix:
            head += f"{logging.getLevelName(level)[0]} {name.removeprefix('llamad.')}: "
        return head

    def access(self, created: float, lines: list[str]) -> str:
        head = self._head(created, logging.INFO, ACCESS_NAME)
        return "".join([f"{head}{text}\n" for text in lines])

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        text = text.translate(_CONTROLS)
        if "\n" in text:
            text = text.replace("\n", f"\n{self._priority(record.levelno)}    ")
        color = _COLORS.get(record.levelno, "") if self._colors else ""
        return f"{self._head(record.created, record.levelno, record.name)}{color}{text}{_NO_COLOR if color else ''}"


class JsonFormatter(Formatter):
    """Lines with one JSON object each."""

    is_json = True

    def __init__(self, in_journal: bool = False) -> None:
        super().__init__(in_journal)

    def access(self, created: float, lines: list[str]) -> str:
        head = f'{self._priority(logging.INFO)}{{"time":{created:.3f},"level":"info","name":"{ACCESS_NAME}",'
        return "".join([f"{head}{fields}}}\n" for fields in lines])

    def format(self, record: logging.LogRecord) -> str:
        row: dict[str, object] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "name": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            row["exception"] = self.formatException(record.exc_info)
        return self._priority(record.levelno) + json.dumps(row, ensure_ascii=False, separators=(",", ":"))
