"""The files of --log-prompts-dir: one for each prompt, for debugging.

Called on the event loop; a thread of its own writes the files, so that a slow disk delays no request. A file that
cannot be written causes a warning, never an error of the request.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

log = logging.getLogger("llamad.prompts")

# The most prompts that wait for the disk; further ones are not written.
WAITING_MAX = 64


class PromptFiles:
    """Writes the prompts to a directory, which it creates. Raises ValueError with a message if it cannot."""

    def __init__(self, directory: str) -> None:
        try:
            os.makedirs(directory, mode=0o700, exist_ok=True)
        except OSError as error:
            raise ValueError(f"--log-prompts-dir {directory}: {error.strerror}") from None
        self._directory = directory
        self._thread = ThreadPoolExecutor(1, "llamad-prompts")
        self._n_waiting = 0
        self._n_files = 0

    def write(self, text: Callable[[], bytes]) -> None:
        """Write a file with what `text` returns; `text` is called in the thread."""
        if self._n_waiting >= WAITING_MAX:
            log.warning("--log-prompts-dir: the disk is too slow; a prompt was not written")
            return
        self._n_waiting += 1
        self._n_files += 1
        # Names sort by time of arrival; the number orders prompts of the same millisecond.
        name = f"{time.time_ns() // 1_000_000:013d}-{self._n_files:06d}.txt"
        self._thread.submit(self._write, os.path.join(self._directory, name), text)

    def close(self) -> None:
        """Write the prompts that still wait."""
        self._thread.shutdown()

    def _write(self, path: str, text: Callable[[], bytes]) -> None:
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(handle, "wb") as file:
                file.write(text())
        except OSError as error:
            log.warning("--log-prompts-dir: %s: %s", path, error.strerror)
        finally:
            self._n_waiting -= 1
