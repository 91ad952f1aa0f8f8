"""The time limit of a command: when it ends, and how a command says that it has more to do."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence

from bench.errors import BenchError

RUN_AGAIN = 75  # the exit status of a command that stopped in time and continues when it is run again
MINUTES = 8.5  # the usual limit on machines that are lent by the minute
END_SECONDS = 20.0


class OutOfTimeError(Exception):
    """The time is up; finished results are kept."""


class Deadline:
    def __init__(self, minutes: float) -> None:
        self.minutes = minutes
        self._t_end = time.monotonic() + minutes * 60

    def left_s(self) -> float:
        return self._t_end - time.monotonic()

    def require(self, seconds: float = 0.0) -> None:
        """Raise OutOfTimeError if less than `seconds` are left."""
        if self.left_s() < seconds:
            raise OutOfTimeError

    def run(self, command: Sequence[str], env: dict[str, str], what: str) -> None:
        """Run a command that writes to our output. When the time is up, it and its children are ended."""
        self.require()
        process = subprocess.Popen(command, env=env, start_new_session=True)
        try:
            status = process.wait(self.left_s())
        except BaseException as error:
            _end(process)
            if isinstance(error, subprocess.TimeoutExpired):
                raise OutOfTimeError from None
            raise
        if status:
            raise BenchError(f"{what} failed with status {status}: its output is above")


def _end(process: subprocess.Popen[bytes]) -> None:
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)
            process.wait(END_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
        return
