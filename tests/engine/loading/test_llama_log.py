"""llama.cpp's log in the program's log."""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

import pytest

from llamad._llama import ffi
from llamad.engine import llama_log
from llamad.engine.llama_log import LlamaLog

WARNING, ERROR = 3, 4


class Ring:
    """Stands for the ring in C."""

    def __init__(self, lines: list[tuple[int, str]]) -> None:
        self._lines = deque(lines)

    def llamad_log_open(self, _fd: int) -> None:
        pass

    def llamad_log_read(self, buffer: Any, _n: int, level: Any) -> int:
        if not self._lines:
            return -1
        level[0], text = self._lines.popleft()
        data = f"{text}\n".encode()
        ffi.memmove(buffer, data, len(data))
        return len(data)

    def llamad_log_dropped(self) -> int:
        return 0


def test_a_warning_is_said_once_and_an_error_each_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A model is opened several times, to estimate its memory and to load it; llama.cpp warns each time."""
    lines = [(WARNING, "an odd token"), (ERROR, "no memory"), (WARNING, "another"), (WARNING, "an odd token")]
    monkeypatch.setattr(llama_log, "lib", Ring([*lines, *lines]))
    with caplog.at_level(logging.DEBUG, "llama.cpp"):
        LlamaLog().drain()
    loud = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert loud == ["an odd token", "no memory", "another", "no memory"]
    assert len(caplog.records) == 2 * len(lines)
