"""Watches the connections to RPC workers while a model is served, in a thread of the engine process, because llama.cpp
would notice a lost worker only at the next request, and abort. It must not read from a connection."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable

from llamad.base.keep_alive import keep_alive


def _connections() -> dict[int, str]:
    """Turn on keep-alive for this process's TCP connections, and return their descriptors and peers. An engine has only
    connections to workers. A worker that hangs keeps its connection; the front then notices that a step does not
    end."""
    connections = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as one:
                if one.family != socket.AF_INET:
                    continue
                host, port = one.getpeername()
                keep_alive(one)
        except OSError:  # it is not a socket, or not connected
            continue
        connections[int(name)] = f"{host}:{port}"
    return connections


def start(lost: Callable[[str], None]) -> None:
    """Start the thread. It calls `lost` with the address of the first worker that ends its connection."""
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
