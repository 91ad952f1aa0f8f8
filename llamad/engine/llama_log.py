"""Copies llama.cpp's log from a ring in C to the program's log, in a thread.

llama.cpp never waits for this thread.
"""

from __future__ import annotations

import logging
import os
import re
import threading

from llamad._llama import ffi, lib
from llamad.protocol.errors import SEE_LOG

log = logging.getLogger("llama.cpp")

# ggml's levels are 1 debug, 2 info, 3 warning, 4 error. llama.cpp's info lines are debug lines for an operator.
_LEVELS = {1: logging.DEBUG, 2: logging.DEBUG, 3: logging.WARNING, 4: logging.ERROR}
_LINE_MAX = 8192
_ERROR = 4
_WARNINGS_MAX = 256
_REASON = re.compile(r"error loading model: (.+)")
_MEMORY = re.compile(r"alloc|out of memory|insufficient memory", re.IGNORECASE)


class LlamaLog:
    """Joins the pieces that llama.cpp prints into lines, and logs them."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_CLOEXEC)
        self._buffer = ffi.new("char[]", _LINE_MAX)
        self._level = ffi.new("int32_t *")
        self._partial = ""
        self._dropped = 0
        self._warnings: set[str] = set()
        self.memory_error = ""  # the first line that says what llama.cpp could not allocate
        self.load_error = ""  # the first reason why llama.cpp could not load a model
        self._lock = threading.Lock()
        lib.llamad_log_open(self._fd)

    def start(self) -> None:
        threading.Thread(target=self._run, name="llamad-log", daemon=True).start()

    def _run(self) -> None:
        while True:
            os.eventfd_read(self._fd)
            self.drain()

    def drain(self) -> None:
        """Log everything in the ring. Any thread."""
        with self._lock:
            while (n := lib.llamad_log_read(self._buffer, _LINE_MAX, self._level)) >= 0:
                self._partial += bytes(ffi.buffer(self._buffer, n)).decode("utf-8", "replace")
                *lines, self._partial = self._partial.split("\n")
                for line in lines:
                    if line.strip(" ."):
                        self._notice(line)
                        log.log(self._level_of(line), "%s", line.rstrip())
            dropped = lib.llamad_log_dropped()
            if dropped != self._dropped:
                log.warning("dropped %d lines of llama.cpp's log: the ring was full", dropped - self._dropped)
                self._dropped = dropped

    def _level_of(self, line: str) -> int:
        """Return the line's level. A warning that was logged before is a debug line: a model is opened several times,
        to estimate its memory and to load it, and llama.cpp says the same each time."""
        level = _LEVELS.get(self._level[0], logging.DEBUG)
        if level != logging.WARNING:
            return level
        if line in self._warnings:
            return logging.DEBUG
        if len(self._warnings) < _WARNINGS_MAX:
            self._warnings.add(line)
        return level

    def _notice(self, line: str) -> None:
        if not self.memory_error and self._level[0] >= _ERROR and _MEMORY.search(line):
            self.memory_error = line.strip()
        if not self.load_error and self._level[0] >= _ERROR and (match := _REASON.search(line)):
            self.load_error = match[1].strip()

    def explained(self, reason: str) -> str:
        """Return the reason of a failed load in llama.cpp's words if it has said one, because clients do not see the
        log. If memory ran out, it also has what llama.cpp could not allocate, and advice."""
        self.drain()
        if self.load_error:
            reason = reason.replace(SEE_LOG, f"llama.cpp says: {self.load_error}")
        if not self.memory_error:
            return reason
        return (
            f"{reason}; memory ran out: {self.memory_error}; lower -c or -np, store the cache smaller with"
            " -ctk q8_0 -ctv q8_0, offload fewer layers (-ngl), or let --fit choose"
        )
