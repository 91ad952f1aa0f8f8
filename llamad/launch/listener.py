"""Who listens on a port of this machine, as the kernel says in /proc.

A key must not be sent to whoever happens to listen: the port may belong to another user's program.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

_PROC = Path("/proc")
_LISTENING = "0A"


class Listener(msgspec.Struct, frozen=True):
    """`address` is the one on which it listens. `command` is the command line of its process, or empty if that is
    unknown."""

    uid: int
    pid: int  # 0 if unknown
    command: tuple[str, ...]
    address: str = ""

    @property
    def is_llamad(self) -> bool:
        """Whether the command line is that of a llamad, as a program or as a module."""
        words = self.command
        if any(os.path.basename(word) == "llamad" for word in words[:2]):
            return True
        return any(pair == ("-m", "llamad") for pair in pairwise(words))


def find(port: int) -> list[Listener]:
    """Return the listeners on this TCP port, on any address."""
    return [_serving(*one) for one in sorted(_sockets(port))]


def address_of(host: str, listeners: Sequence[Listener]) -> str:
    """Return the address of a host that one of the listeners serves, or an empty text. A name may also have addresses
    where nobody listens yet, and the address may be another machine's."""
    for *_, (address, *_) in _addresses(host):
        wildcards = ("0.0.0.0", "::") if "." in address else ("::",)
        if _is_local(address) and any(one.address in (address, *wildcards) for one in listeners):
            return str(address)
    return ""


def _addresses(host: str) -> list[Any]:
    try:
        return socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return []


def _is_local(address: str) -> bool:
    """Return whether this machine has the address: nobody can listen on another one."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as one:
        try:
            one.bind((address, 0))
        except OSError:
            return False
    return True


def _sockets(port: int) -> set[tuple[int, str, str]]:
    """Return the user, the inode and the address of each socket that listens on the port."""
    sockets = set()
    for name in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / name).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            address, _, number = fields[1].partition(":")
            if fields[3] == _LISTENING and int(number, 16) == port:
                sockets.add((int(fields[7]), fields[9], _text_of(address)))
    return sockets


def _text_of(words: str) -> str:
    """Return the address that the kernel writes as words of 32 bits, each in the byte order of the machine."""
    data = b"".join(int(words[i : i + 8], 16).to_bytes(4, sys.byteorder) for i in range(0, len(words), 8))
    return socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data)


def _serving(uid: int, inode: str, address: str) -> Listener:
    """Return who serves a socket of a user. Several processes may have it, such as systemd and the llamad to which it
    has passed the socket: then it is the llamad, or else the first of them."""
    is_seen = os.geteuid() in (uid, 0)
    holders = [
        Listener(_user(pid, uid), pid, _command(pid), address)
        for pid in (_processes(inode) if is_seen else ())
    ]
    llamads = [one for one in holders if one.is_llamad]
    return next(iter(llamads or holders), Listener(uid, 0, (), address))


def _processes(inode: str) -> Iterator[int]:
    """Yield the processes that have the socket, as far as they can be seen."""
    name = f"socket:[{inode}]"
    for pid in sorted(int(entry) for entry in os.listdir(_PROC) if entry.isdigit()):
        folder = _PROC / str(pid) / "fd"
        try:
            if any(_target(folder / fd) == name for fd in os.listdir(folder)):
                yield pid
        except OSError:
            continue


def _user(pid: int, default: int) -> int:
    """Return the user whose rights a process has: not always the one who has opened its socket."""
    try:
        lines = (_PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return default
    return next((int(line.split()[2]) for line in lines if line.startswith("Uid:")), default)


def _target(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _command(pid: int) -> tuple[str, ...]:
    try:
        data = (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(word.decode("utf-8", "replace") for word in data.split(b"\0") if word)
