"""The lookup caches that the flags name: opens them when the engine starts, and writes the dynamic one now and then.

The engine thread drafts from their tables and learns without waiting. A thread of its own writes the file.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING

from llamad.engine.drafts.lookup_file import BadLookupFile, LookupFile
from llamad.protocol.errors import FileRefused

if TYPE_CHECKING:
    from llamad.flags.settings import ModelSettings

log = logging.getLogger("llamad.engine")

WRITE_SECONDS = 60.0  # what a crash may cost


def open_static(settings: ModelSettings, n_vocab: int) -> LookupFile | None:
    """Return the table of --lookup-cache-static, if there is one. Raises FileRefused."""
    if settings.lookup_cache_static is None:
        return None
    try:
        return LookupFile(settings.lookup_cache_static, n_vocab)
    except BadLookupFile as error:
        raise FileRefused(
            f"--lookup-cache-static: {error}; make one for this model with llama-lookup-create, or leave out the flag"
        ) from None


def open_dynamic(settings: ModelSettings, n_vocab: int) -> LookupFile | None:
    """Return the table of --lookup-cache-dynamic, if there is one; its file may be missing. Raises FileRefused."""
    path = settings.lookup_cache_dynamic
    if path is None:
        return None
    try:
        file = LookupFile(path, n_vocab, learns=True)
    except BadLookupFile as error:
        raise FileRefused(
            f"--lookup-cache-dynamic: {error}; move it away to begin a new one, or name another file"
        ) from None
    folder = os.path.dirname(os.path.realpath(path))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise FileRefused(
            f"--lookup-cache-dynamic: {path} could not be written, because {folder} is not a folder in which this user"
            " may make files; make one, or name a file elsewhere"
        )
    return file


class LookupWriter:
    """Writes what a table has learned to its file: from start() on every `seconds`, and at stop()."""

    def __init__(self, file: LookupFile, seconds: float = WRITE_SECONDS) -> None:
        self._file = file
        self._seconds = seconds
        self._n_written = -1
        self._complaint = ""  # the last error, which is logged once
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="llamad-lookup", daemon=True)

    def start(self) -> None:
        """Make the file if it is missing, and begin."""
        if os.path.exists(self._file.path):
            self._n_written = self._file.n_changes
        self._write()
        self._thread.start()

    def stop(self) -> None:
        """Write what is left. Call when the engine has ended."""
        self._is_over.set()
        self._thread.join()
        self._write()

    def _run(self) -> None:
        while not self._is_over.wait(self._seconds):
            self._write()

    def _write(self) -> None:
        n_changes = self._file.n_changes
        if n_changes == self._n_written:
            return
        try:
            self._file.write()
        except (OSError, MemoryError) as error:
            reason = getattr(error, "strerror", None) or str(error) or "no memory"
            if reason != self._complaint:
                log.warning("cannot write %s: %s; it stays as it was", self._file.path, reason)
            self._complaint = reason
            return
        self._complaint = ""
        self._n_written = n_changes
