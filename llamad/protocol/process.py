"""What the front and an engine process share outside of their messages: descriptors, exit status, log lines."""

from __future__ import annotations

import json

# File descriptors that are open when an engine process starts.
CONTROL_FD, MEMORY_FD, COMMAND_FD, EVENT_FD = range(3, 7)

EXIT_LOST = 3  # llama.cpp's context was lost and could not be created again
EXIT_WORKER = 4  # an RPC worker is gone; a log line that begins with LOST_WORKER names it
LOST_WORKER = "the RPC worker "
EXIT_CONTROL = 5  # a thread that answers the front's messages failed; the log says why

# An engine's log is its standard error. A log record is a line that begins with this character; other lines were
# written by libraries.
_RECORD = "\x1e"


def log_line(level: int, name: str, message: str) -> str:
    return _RECORD + json.dumps([level, name, message]) + "\n"


def read_log_line(line: str) -> tuple[int, str, str] | None:
    """Return level, logger and message, or None if the line is not a log record."""
    if not line.startswith(_RECORD):
        return None
    try:
        level, name, message = json.loads(line[1:])
    except ValueError:
        return None
    return int(level), str(name), str(message)
