"""TCP keep-alive of connections to and from RPC workers: a machine that vanishes silently is noticed after a minute.
Any thread."""

from __future__ import annotations

import socket

_TIMES = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


def keep_alive(connection: socket.socket) -> None:
    """Turn on keep-alive for a connection, or for all connections that a listening socket accepts. Raises OSError."""
    for option, value in _TIMES:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
