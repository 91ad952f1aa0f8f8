"""Owns llama.cpp's log on the Python side: drains the C ring into the program's log.

Runs on the event loop, woken by the ring's eventfd. llama.cpp never waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import os

from llamad._llama import ffi, lib

log = logging.getLogger("llama.cpp")

# ggml's levels: 1 debug, 2 info, 3 warning, 4 error. llama.cpp's info is an operator's debug.
_LEVELS = {1: logging.DEBUG, 2: logging.DEBUG, 3: logging.WARNING, 4: logging.ERROR}
_LINE_MAX = 8192


class LlamaLog:
    """Joins the pieces llama.cpp prints into lines."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._buffer = ffi.new("char[]", _LINE_MAX)
        self._level = ffi.new("int32_t *")
        self._partial = ""
        self._dropped = 0
        lib.llamad_log_open(self._fd)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.add_reader(self._fd, self.drain)

    def detach(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self._fd)
        self.drain()

    def drain(self) -> None:
        """Log everything in the ring."""
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            pass
        while (n := lib.llamad_log_read(self._buffer, _LINE_MAX, self._level)) >= 0:
            self._partial += bytes(ffi.buffer(self._buffer, n)).decode("utf-8", "replace")
            *lines, self._partial = self._partial.split("\n")
            for line in lines:
                if line.strip(" ."):
                    log.log(_LEVELS.get(self._level[0], logging.DEBUG), "%s", line.rstrip())
        dropped = lib.llamad_log_dropped()
        if dropped != self._dropped:
            log.warning("dropped %d lines of llama.cpp's log: the ring was full", dropped - self._dropped)
            self._dropped = dropped
