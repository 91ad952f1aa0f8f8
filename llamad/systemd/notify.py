"""Speaks systemd's notify protocol, where systemd listens (Type=notify): one datagram a message, no library.

Any thread; never fails, never waits. When what is said is heartbeat.py's and daemon.py's.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import MutableMapping

# How long systemd is to wait for the next word while a model loads or requests finish.
EXTEND_SECONDS = 60
VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class _State:
    """What systemd said at the start, and what it was told."""

    def __init__(self) -> None:
        self.taken: dict[str, str] = {}
        self.is_ready = False  # a reload ends with READY=1, which must not come before the first one
        self.status = ""
        self.note = ""  # of the last reload; stands beside every status
        self.shown = ""  # both
        self.unsent: list[str] = []  # lines for which systemd had no room


_state = _State()


def take(environ: MutableMapping[str, str]) -> None:
    """Keep what systemd said from children: none of them is to speak to it."""
    _state.taken = {name: environ.pop(name) for name in VARIABLES if name in environ}


def _said(name: str) -> str:
    return _state.taken.get(name) or os.environ.get(name, "")


def is_told() -> bool:
    return bool(_said("NOTIFY_SOCKET"))


def watchdog_seconds() -> float | None:
    """Without WATCHDOG=1 for so long, systemd ends this process; None: it does not watch."""
    usec, pid = _said("WATCHDOG_USEC"), _said("WATCHDOG_PID")
    if not is_told() or not usec.isdigit() or int(usec) == 0 or pid not in ("", str(os.getpid())):
        return None
    return int(usec) / 1e6


def tell(*lines: str, status: str | None = None) -> None:
    """Sends assignments such as READY=1, and the status if it is a new one."""
    if status is not None:
        _state.status = status
        text = " ".join("; ".join(filter(None, [status, _state.note])).split())
        if text != _state.shown:
            _state.shown = text
            lines = (*lines, f"STATUS={text}")
    path = _said("NOTIFY_SOCKET")
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
        _state.unsent = pending  # READY=1 must not be lost: it goes with the next heartbeat
    except OSError:
        pass  # systemd judges by its own timeouts


def extension() -> str:
    """A start or a stop that goes on may take longer than TimeoutStartSec or TimeoutStopSec."""
    return f"EXTEND_TIMEOUT_USEC={EXTEND_SECONDS * 1_000_000}"


def ready(status: str) -> None:
    """The model serves."""
    _state.is_ready = True
    tell("READY=1", status=status)


def stopping(status: str) -> None:
    _state.is_ready = False
    tell("STOPPING=1", extension(), status=status)


def reloading() -> None:
    """A reload has begun; reloaded() must follow."""
    if _state.is_ready:
        tell("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")


def reloaded(status: str) -> None:
    """A reload has ended, well or not. `status` is shown beside the daemon's own until the next reload; "": nothing
    to say."""
    _state.note = status
    if _state.is_ready:
        tell("READY=1", status=_state.status)
