"""Watches the connections to RPC workers while a model is served, in a thread of the engine process: llama.cpp would
notice a lost worker only at the next request, and abort. Must not read from a connection."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable

from llamad.base.keep_alive import keep_alive


def _connections() -> dict[int, str]:
    """This process's TCP connections, now kept alive: descriptor and peer. An engine has none but to workers. One that
    hangs keeps its connection: the front notices that a step does not end."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as one:
                if one.family != socket.AF_INET:
                    continue
                host, port = one.getpeername()
                keep_alive(one)
        except OSError:  # no socket, or not connected
            continue
        found[int(name)] = f"{host}:{port}"
    return found


def start(lost: Callable[[str], None]) -> None:
    """`lost` is called in the thread, with the address of the first worker that ends its connection."""
    connections = _connections()
    poller = select.poll()
    for fd in connections:
        poller.register(fd, select.POLLRDHUP)

    def watch() -> None:
        while connections:
            for fd, event in poller.poll():
                if not event & select.POLLNVAL:
                    lost(connections[fd])
                    return
                poller.unregister(fd)  # llama.cpp has closed it
                del connections[fd]

    threading.Thread(target=watch, name="llamad-workers", daemon=True).start()
