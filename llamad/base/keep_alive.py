"""Owns how a TCP connection to or from an RPC worker is kept alive, so that a machine that is gone without a word is
noticed after a minute. Any thread."""

from __future__ import annotations

import socket

_TIMES = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


def keep_alive(connection: socket.socket) -> None:
    """Of a listening socket: the connections that it accepts from now on. Raises OSError."""
    for option, value in _TIMES:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
