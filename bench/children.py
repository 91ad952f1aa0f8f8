"""Owns how a measurement that is told to stop ends: the servers and generators that it started end with it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from types import FrameType


def with_children() -> None:
    """From now on SIGTERM unwinds the program, as ^C does: a server that outlived it would be in the next one's way."""
    signal.signal(signal.SIGTERM, _end)


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what unwinds is not broken off
    # One that is just being started is nobody's yet, and nobody would end it.
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it has ended by itself
            for pid in path.read_text().split():
                os.kill(int(pid), signal.SIGTERM)
    sys.exit(128 + number)
