"""What happens when the disk fails: one log line, and a pause that grows until it works again.

Any thread. A fault costs the cache, never a request: during the pause it is left alone.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Sequence

log = logging.getLogger("llamad.cache")

PAUSE_SECONDS_MIN = 5.0
PAUSE_SECONDS_MAX = 300.0
IGNORED_LINES_MAX = 3  # more files that cannot be read are named by one line
# Errors that say nothing about a file: the process or the machine has run out of something.
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def reason_of(error: Exception) -> str:
    """Return what a line says about an error."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def is_of_file(error: OSError) -> bool:
    """Return whether an error concerns the one file that was opened or read."""
    return error.errno not in _EXHAUSTED


def log_ignored(files: Sequence[tuple[str, str]]) -> None:
    """Log the names of files that are ignored from now on, and why each of them cannot be read."""
    if len(files) > IGNORED_LINES_MAX:
        name, reason = files[0]
        log.warning(
            "%d files of the cache on disk are ignored, because they cannot be read, such as %s: %s",
            len(files),
            name,
            reason,
        )
        return
    for name, reason in files:
        log.warning("the file %s of the cache on disk is ignored: %s", name, reason)


class Faults:
    """Counts the faults of one kind; `what` says what fails."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._pause = 0.0  # seconds; 0: it works
        self._t_end = 0.0
        self.n_total = 0

    @property
    def is_paused(self) -> bool:
        """Whether the disk is left alone for now."""
        return self._pause > 0 and time.monotonic() < self._t_end

    def failed(self, error: Exception) -> None:
        """Note a failure, and pause."""
        reason = reason_of(error)
        with self._lock:
            self.n_total += 1
            is_first = self._pause == 0
            self._pause = min(max(2 * self._pause, PAUSE_SECONDS_MIN), PAUSE_SECONDS_MAX)
            self._t_end = time.monotonic() + self._pause
        if is_first:
            log.warning(
                "%s: %s; requests go on without it, and it is tried again in %g s",
                self._what,
                reason,
                PAUSE_SECONDS_MIN,
            )

    def worked(self) -> None:
        """Note that it works."""
        with self._lock:
            was_failing, self._pause = self._pause > 0, 0.0
        if was_failing:
            log.warning("%s: that works again", self._what)
