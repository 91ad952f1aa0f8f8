"""Tells systemd how the daemon is doing, where it started it with Type=notify. Any thread; never fails, never waits."""

from __future__ import annotations

import os
import socket

# How long systemd is to wait for the next word while a model loads, and how often it gets one.
START_SECONDS = 60
TELL_SECONDS = 15


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


def still_loading(status: str) -> None:
    """A large model takes longer than TimeoutStartSec."""
    tell(f"STATUS={status}", f"EXTEND_TIMEOUT_USEC={START_SECONDS * 1_000_000}")
