"""Owns the exit statuses of a daemon, which a supervisor acts on; docs/operations.md says what to do for each.

Beside 1 and 2 they are those of sysexits.h, which `systemctl status` shows by name; 200 and above are systemd's own.
"""

from __future__ import annotations

OK = 0  # stopped by a signal
# What the command line names cannot be served (no such file, no GGUF, no download), a second signal, or a bug.
FAILED = 1
WRONG_FLAGS = 2  # INVALIDARGUMENT; the same command line fails again
LOAD_FAILED = 65  # DATAERR: the model was opened and never served
ENGINE_GIVEN_UP = 70  # SOFTWARE: the model has served, and its engine is not started again
LISTEN_FAILED = 71  # OSERR: an address is taken or not ours, or an inherited socket is of the wrong kind
