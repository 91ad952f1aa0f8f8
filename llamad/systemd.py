"""Tells systemd how the daemon is doing, where it started it with Type=notify: one datagram a word, no library.

Any thread; never fails, never waits. What is said regularly, and when, is heartbeat.py's.
"""

from __future__ import annotations

import os
import socket
import time

# How long systemd is to wait for the next word while a model loads, and how often it gets one.
START_SECONDS = 60
TELL_SECONDS = 15


class _Told:
    """What systemd was told: a reload ends with READY=1, which must not come before the first one."""

    is_ready = False
    note = ""  # of the last reload; stands beside every status


def is_told() -> bool:
    return bool(os.environ.get("NOTIFY_SOCKET"))


def tell(*lines: str) -> None:
    """Sends assignments such as READY=1."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    try:
        with socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        ) as sender:
            sender.sendto("\n".join(lines).encode("utf-8", "replace"), address)
    except OSError:
        pass  # systemd judges by its own timeouts


def status_line(status: str) -> str:
    """On one line, with what the last reload left to say."""
    text = "; ".join(filter(None, [status, _Told.note]))
    return "STATUS=" + " ".join(text.split())


def still_loading(status: str) -> None:
    """A large model takes longer than TimeoutStartSec."""
    tell(status_line(status), f"EXTEND_TIMEOUT_USEC={START_SECONDS * 1_000_000}")


def ready(status: str) -> None:
    """The model serves."""
    _Told.is_ready = True
    tell("READY=1", status_line(status))


def stopping(status: str) -> None:
    _Told.is_ready = False
    tell("STOPPING=1", status_line(status))


def reloading() -> None:
    """A reload has begun; reloaded() must follow."""
    if _Told.is_ready:
        tell("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")


def reloaded(status: str) -> None:
    """A reload has ended, well or not. `status` is shown beside the daemon's own until the next reload; "": nothing
    to say."""
    _Told.note = status
    if _Told.is_ready:
        tell("READY=1", status_line("serving"))
