"""A pool of converter processes, which are started when they are needed and reused.

Any thread. Only one thread uses a process at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from llamad.chat.conversion.process import Process


class Processes:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: list[Process] = []
        self._idle: list[Process] = []  # the last one is used next, so that few are started

    @contextmanager
    def one(self) -> Iterator[Process]:
        """Lend a process that nobody else uses meanwhile."""
        with self._lock:
            if self._idle:
                process = self._idle.pop()
            else:
                process = Process()
                self._all.append(process)
        try:
            yield process
        finally:
            with self._lock:
                self._idle.append(process)

    def close(self) -> None:
        """Kill all processes, whatever they are doing."""
        with self._lock:
            processes = list(self._all)
        for process in processes:
            process.close()
