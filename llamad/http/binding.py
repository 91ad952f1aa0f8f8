"""Owns the listening sockets: bound before there is an event loop, so that no connection is refused while the program
is still importing. Runs on the main thread at start-up; must import little."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from llamad.http import unix_socket

# Bursts of new connections wait here while the loop is busy.
BACKLOG = 2048


@dataclass(slots=True)
class Bound:
    """Listening sockets, one per address of the host; `file` is that of a Unix socket."""

    sockets: list[socket.socket]
    file: unix_socket.SocketFile | None = None

    @property
    def is_local(self) -> bool:
        """Whether all are loopback addresses. Not for a Unix socket, to which browsers cannot connect."""
        return self.file is None and all(_is_loopback(sock.getsockname()[0]) for sock in self.sockets)

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()
        if self.file is not None:
            self.file.remove()


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def refusal(error: OSError) -> str:
    """One line for the operator: what failed in bind(), and what to do."""
    sentence = error.strerror or str(error)
    return sentence if ";" in sentence else f"{sentence}; choose another --host or --port"


def _find_dead_peers(sock: socket.socket) -> None:
    """Enable TCP keepalive, so that a client machine that lost power is noticed within two minutes.

    Accepted connections inherit this from the listening socket.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)


def bind(host: str, port: int) -> Bound:
    """Listen on an address, or on a Unix socket if the host is a path. Raises OSError with a message."""
    if unix_socket.is_path(host):
        sock, file = unix_socket.bind(host)
        sock.listen(BACKLOG)
        return Bound([sock], file)
    bound = Bound([])
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            sock = socket.socket(family, kind, protocol)
            bound.sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(address)
            _find_dead_peers(sock)
            sock.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    return bound
