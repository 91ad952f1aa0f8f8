"""Takes listening sockets that a supervisor such as systemd passes to llamad at start-up (socket activation).

Runs on the main thread before any other process is started, so that no child inherits them; must import little.
"""

from __future__ import annotations

import errno
import os
from collections.abc import MutableMapping

FIRST_FD = 3
VARIABLES = ("LISTEN_PID", "LISTEN_PIDFDID", "LISTEN_FDS", "LISTEN_FDNAMES")

Passed = list[tuple[int, str]]  # descriptors, and their names; "" if they have none


def take(environ: MutableMapping[str, str]) -> Passed:
    """Return the descriptors that were passed to this process. They become non-inheritable, and their variables are
    removed from `environ`, so that no child gets them. Raises OSError with a message."""
    pid, _, count, names = (environ.pop(name, "") for name in VARIABLES)
    if pid != str(os.getpid()):
        return []
    if not count.isascii() or not count.isdigit():
        raise OSError(errno.EINVAL, f"LISTEN_FDS={count!r} is not a number; it counts inherited sockets")
    passed: Passed = []
    all_names = names.split(":") if names else []
    for i in range(int(count)):
        try:
            os.set_inheritable(FIRST_FD + i, False)
        except (OSError, OverflowError):
            reason = f"LISTEN_FDS={count}, but descriptor {FIRST_FD + i} is not open; start llamad by its socket unit"
            raise OSError(errno.EBADF, reason) from None
        passed.append((FIRST_FD + i, all_names[i] if i < len(all_names) else ""))
    return passed
