"""The listening sockets, which are inherited, or bound before there is an event loop, so that no connection is refused
while the program is still importing. Runs on the main thread at start-up; must import little."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from enum import IntEnum

import msgspec

from llamad.http import unix_socket
from llamad.http.activation import Passed

# So many new connections wait in the kernel while the event loop is busy.
BACKLOG = 2048
# At inherited sockets they wait for a whole restart, so it is as many as the kernel allows (net.core.somaxconn).
BACKLOG_INHERITED = 65535


class Reach(IntEnum):
    """Who can connect."""

    FILES = 0  # programs that may open a Unix socket, which browsers cannot do
    LOOPBACK = 1  # programs on this machine, including browsers
    NETWORK = 2


class Bound(msgspec.Struct):
    """Listening sockets, one per address of each host. `files` are the files of Unix sockets that this process must
    remove. `names` has each host as the operator wrote it, and its port (0: a Unix socket). With `is_inherited` the
    sockets stay open when this process ends, and the next process serves the clients that wait there."""

    sockets: list[socket.socket] = msgspec.field(default_factory=list)
    files: list[unix_socket.SocketFile] = msgspec.field(default_factory=list)
    names: list[tuple[str, int]] = msgspec.field(default_factory=list)
    is_inherited: bool = False

    @property
    def backlog(self) -> int:
        return BACKLOG_INHERITED if self.is_inherited else BACKLOG

    @property
    def reach(self) -> Reach:
        """Return who can connect to any of the sockets."""
        tcp = [sock.getsockname()[0] for sock in self.sockets if sock.family != socket.AF_UNIX]
        return max((_reach(address) for address in tcp), default=Reach.FILES)

    def urls(self, scheme: str) -> str:
        """Return all hosts as URLs, separated by commas."""
        urls = []
        for host, port in self.names:
            name = f"[{host}]" if ":" in host else host
            urls.append(f"unix:{host}" if port == 0 else f"{scheme}://{name}:{port}")
        return ", ".join(urls)

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()
        for file in self.files:
            file.remove()


def _reach(address: str) -> Reach:
    return Reach.LOOPBACK if address.startswith("127.") or address == "::1" else Reach.NETWORK


def refusal(error: OSError) -> str:
    """Return one line for the operator that says what failed in bind(), and what to do."""
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


def bind(hosts: Sequence[str], port: int, reuse_port: bool = False) -> Bound:
    """Listen on each address, or on a Unix socket if the host is a path. With port 0 all get the port that the first
    one gets. "::" alone includes IPv4. Raises OSError with a message."""
    bound = Bound()
    try:
        for host in hosts:
            if unix_socket.is_path(host):
                _bind_file(bound, host)
            else:
                port = _bind_host(bound, host, port, reuse_port)
        if tuple(hosts) == ("::",) and socket.has_ipv6:
            _bind_host(bound, "0.0.0.0", port, reuse_port)
            bound.names.pop()
    except OSError:
        bound.close()
        raise
    return bound


def inherit(passed: Passed) -> Bound:
    """Take over sockets on which a supervisor already listens. Raises OSError with a message."""
    bound = Bound(is_inherited=True)
    for fd, name in passed:
        sock = _inherited(fd, f"the inherited descriptor {fd}" + (f" ({name})" if name else ""))
        bound.sockets.append(sock)
        address = sock.getsockname()
        if sock.family != socket.AF_UNIX:
            _find_dead_peers(sock)
            bound.names.append((address[0], address[1]))
        elif isinstance(address, bytes):  # an abstract Unix socket, which has no file
            bound.names.append(("@" + address[1:].decode("utf-8", "replace"), 0))
        else:
            bound.names.append((address, 0))
    return bound


def _inherited(fd: int, what: str) -> socket.socket:
    try:
        sock = socket.socket(fileno=fd)
    except OSError:
        raise OSError(errno.ENOTSOCK, f"{what} is not a socket; llamad needs ListenStream=") from None
    if sock.family not in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):
        reason = f"{what} is neither a TCP nor a Unix socket; llamad needs one of them"
        raise OSError(errno.EAFNOSUPPORT, reason)
    if sock.type != socket.SOCK_STREAM:
        raise OSError(errno.EPROTOTYPE, f"{what} is not a stream socket; llamad needs ListenStream=")
    if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise OSError(errno.EINVAL, f"{what} does not listen; llamad needs a socket unit with Accept=no")
    return sock


def _bind_file(bound: Bound, path: str) -> None:
    sock, file = unix_socket.bind(path)
    bound.sockets.append(sock)
    bound.files.append(file)
    bound.names.append((path, 0))
    sock.listen(BACKLOG)


def _bind_host(bound: Bound, host: str, port: int, reuse_port: bool) -> int:
    """Listen on all addresses of the host; return the port. Raises OSError with a message."""
    taken = {(sock.family, sock.getsockname()) for sock in bound.sockets}
    try:
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(addresses):
            address = (address[0], port, *address[2:])
            if (family, address) in taken:
                continue  # "127.0.0.1,localhost"
            sock = socket.socket(family, kind, protocol)
            bound.sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if reuse_port:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(address)
            port = sock.getsockname()[1]
            _find_dead_peers(sock)
            sock.listen(BACKLOG)
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    bound.names.append((host, port))
    return port
