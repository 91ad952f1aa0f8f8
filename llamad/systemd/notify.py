"""Speaks systemd's notify protocol (Type=notify) without a library: each message is one datagram.

Any thread; never fails, never waits. heartbeat.py and daemon.py decide when to send what.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import MutableMapping

# How long systemd should wait for the next message while a model loads or requests finish.
EXTEND_SECONDS = 60
VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class _State:
    """The variables that systemd set at the start, and what it was told since."""

    def __init__(self) -> None:
        self.taken: dict[str, str] = {}
        self.is_ready = False  # READY=1 was sent; a reload, which ends with it, must not send it earlier
        self.status = ""
        self.note = ""  # the result of the last reload, which is added to every status
        self.shown = ""  # the last status and note that were sent
        self.unsent: list[str] = []  # lines that did not fit into systemd's socket


_state = _State()


def take(environ: MutableMapping[str, str]) -> None:
    """Move systemd's variables out of the environment, so that no child process talks to it."""
    _state.taken = {name: environ.pop(name) for name in VARIABLES if name in environ}


def _variable(name: str) -> str:
    return _state.taken.get(name) or os.environ.get(name, "")


def is_supervised() -> bool:
    return bool(_variable("NOTIFY_SOCKET"))


def watchdog_seconds() -> float | None:
    """Return after how many seconds without WATCHDOG=1 systemd kills this process, or None if it has no watchdog."""
    usec, pid = _variable("WATCHDOG_USEC"), _variable("WATCHDOG_PID")
    if not is_supervised() or not usec.isdigit() or int(usec) == 0 or pid not in ("", str(os.getpid())):
        return None
    return int(usec) / 1e6


def tell(*lines: str, status: str | None = None) -> None:
    """Send assignments such as READY=1, and the status if it has changed."""
    if status is not None:
        _state.status = status
        text = " ".join("; ".join(filter(None, [status, _state.note])).split())
        if text != _state.shown:
            _state.shown = text
            lines = (*lines, f"STATUS={text}")
    path = _variable("NOTIFY_SOCKET")
    # A newer line of the same name replaces one that was not sent.
    pending = list({line.partition("=")[0]: line for line in (*_state.unsent, *lines)}.values())
    if not path or not pending:
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    _state.unsent = []
    try:
        with socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        ) as sender:
            sender.sendto("\n".join(pending).encode("utf-8", "replace"), address)
    except BlockingIOError:
        _state.unsent = pending  # the next heartbeat sends them, because READY=1 must not be lost
    except OSError:
        pass  # systemd will notice by its own timeouts


def extension() -> str:
    """Return the assignment that asks for more time than TimeoutStartSec or TimeoutStopSec."""
    return f"EXTEND_TIMEOUT_USEC={EXTEND_SECONDS * 1_000_000}"


def ready(status: str) -> None:
    """Report that the model serves."""
    _state.is_ready = True
    tell("READY=1", status=status)


def stopping(status: str) -> None:
    _state.is_ready = False
    tell("STOPPING=1", extension(), status=status)


def reloading() -> None:
    """Report that a reload has begun; reloaded() must follow."""
    if _state.is_ready:
        tell("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")


def reloaded(status: str) -> None:
    """Report that a reload has ended, whether it worked or not. `status` is shown beside the daemon's own until the
    next reload, unless it is empty."""
    _state.note = status
    if _state.is_ready:
        tell("READY=1", status=_state.status)
