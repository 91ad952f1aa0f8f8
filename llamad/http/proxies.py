"""Finds the address of a client behind trusted proxies, from headers or the PROXY protocol.

Runs on the event loop, and only for connections from trusted proxies; such headers of other clients are never read.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from llamad.http.errors import HttpError
from llamad.http.request import address_of, peer_name

UNIX = "unix"
HOPS_MAX = 32  # how many proxies in a row are looked at
# PROXY protocol: the longest line of version 1, the signature of version 2, and the most bytes after its header.
LINE_MAX = 107
MARK = b"\r\n\r\n\x00\r\nQUIT\n"
HEAD_BYTES = 16
REST_MAX = 4096
VERSION, COMMAND_PROXY, COMMAND_LOCAL = 2, 1, 0
# Over TCP: the address family, and the bytes of an address.
FAMILIES = {0x11: (socket.AF_INET, 4), 0x21: (socket.AF_INET6, 16)}

_LINE = re.compile(rb"PROXY TCP([46]) ([0-9a-fA-F:.]{2,45}) ([0-9a-fA-F:.]{2,45}) (\d{1,5}) (\d{1,5})")
_UNKNOWN = re.compile(rb"PROXY UNKNOWN(?: [^\r\n]*)?")
# An address with or without a port, as Forwarded and X-Forwarded-For write it.
_NODE = re.compile(
    r'"?(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+)|([0-9a-fA-F:]+:[0-9a-fA-F:.]*))(?(3)|(?::(\d{1,5}))?)"?'
)
_FOR = re.compile(r"(?:^|;)\s*for=([^;]*)", re.IGNORECASE)

Peer = tuple[str, int]  # an address and a port; 0: not known


def _plain(host: str) -> IPv4Address | IPv6Address | None:
    """Parse an address; an IPv4 address mapped into IPv6 becomes IPv4. Return None if it is not an address."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def _node(text: str) -> Peer | None:
    """Parse an address that a proxy wrote. Return None for anything else, such as "unknown" or a name."""
    match = _NODE.fullmatch(text.strip(" \t"))
    address = _plain(match[1] or match[2] or match[3]) if match is not None else None
    if match is None or address is None:
        return None
    return str(address), min(int(match[4] or 0), 65535)


def _hops(headers: dict[str, str]) -> list[str]:
    """Return the addresses that proxies added, the nearest last. If both headers are there, X-Forwarded-For counts."""
    listed = headers.get("x-forwarded-for")
    if listed is not None:
        return listed.split(",")[-HOPS_MAX:]
    nodes = [_FOR.search(element) for element in headers.get("forwarded", "").split(",")[-HOPS_MAX:]]
    return [match[1] if match is not None else "" for match in nodes]


class Proxies:
    """The proxies that are trusted: networks, and "unix" for Unix sockets. With `speaks_first` their connections begin
    with the PROXY protocol."""

    def __init__(self, networks: Sequence[str], speaks_first: bool = False) -> None:
        self._networks = [ip_network(one) for one in networks if one != UNIX]
        self._has_unix = UNIX in networks
        self.speaks_first = speaks_first

    def trusts(self, host: str) -> bool:
        address = _plain(host)
        return address is not None and any(address in network for network in self._networks)

    def meet(self, peer: object) -> Proxied | None:
        """Return the state of a new connection if its peer is a trusted proxy, else None."""
        if address_of(peer) == UNIX:
            return Proxied(self, peer) if self._has_unix else None
        assert isinstance(peer, tuple)
        return Proxied(self, peer) if self.trusts(peer[0]) else None


class Proxied:
    """A connection from a trusted proxy."""

    def __init__(self, proxies: Proxies, peer: object) -> None:
        self._proxies = proxies
        self._peer = peer
        self._reads_headers = True
        self._preface = b""
        self.awaits_preface = proxies.speaks_first
        self.is_shared = True  # its requests may come from several clients
        self.name = peer_name(peer)
        self.address = address_of(peer)

    def feed(self, data: bytes) -> bytes | None:
        """Read the PROXY protocol's header. Return the bytes after it, or None if it is not complete. Raises
        HttpError."""
        self._preface += data
        n_read = _length(self._preface)
        if n_read > len(self._preface):
            return None
        head, rest = self._preface[:n_read], self._preface[n_read:]
        self._preface, self.awaits_preface = b"", False
        peer = _second(head) if head.startswith(MARK) else _first(head)
        if peer is not None:
            self._peer = peer
            self._reads_headers = self.is_shared = self._proxies.trusts(peer[0])
            self._see(peer)
        return rest

    def client(self, headers: dict[str, str]) -> str:
        """Return the name of the client that a request comes from: the nearest hop that is not a trusted proxy."""
        if self._reads_headers:
            nearest = self._peer
            for hop in reversed(_hops(headers)):
                peer = _node(hop)
                if peer is None:
                    break  # the hops before it cannot be trusted
                nearest = peer
                if not self._proxies.trusts(peer[0]):
                    break
            self._see(nearest)
        return self.name

    def _see(self, peer: object) -> None:
        self.name, self.address = peer_name(peer), address_of(peer)


def _bad(what: str) -> HttpError:
    return HttpError(400, f"The connection must begin with the PROXY protocol (--proxy-protocol): {what}.")


def _length(data: bytes) -> int:
    """Return the length of the PROXY protocol's header, or more than `data` has if it is not known yet. Raises
    HttpError."""
    if data.startswith(MARK):
        if len(data) < HEAD_BYTES:
            return HEAD_BYTES
        n_rest = int.from_bytes(data[14:16], "big")
        if n_rest > REST_MAX:
            raise _bad(f"its header has more than {REST_MAX} bytes")
        return HEAD_BYTES + n_rest
    if MARK.startswith(data) or b"PROXY ".startswith(data[:6]):
        end = data.find(b"\r\n", 0, LINE_MAX)
        if end >= 0 and not MARK.startswith(data):
            return end + 2
        if len(data) < LINE_MAX:
            return len(data) + 1
        raise _bad(f"its line has more than {LINE_MAX} bytes")
    raise _bad("something else came")


def _first(line: bytes) -> Peer | None:
    """Parse the header of PROXY protocol version 1. Return the client, or None if the proxy speaks for itself."""
    line = line[:-2]
    if _UNKNOWN.fullmatch(line):
        return None
    match = _LINE.fullmatch(line)
    if match is None:
        raise _bad("its line cannot be read")
    try:
        parsed = ip_address(match[2].decode())
        ip_address(match[3].decode())
    except ValueError:
        raise _bad("its line has no valid address") from None
    if parsed.version != int(match[1]) or int(match[4]) > 65535:
        raise _bad("its line contradicts itself")
    return str(_plain(str(parsed))), int(match[4])


def _second(data: bytes) -> Peer | None:
    """Parse the header of PROXY protocol version 2. Return the client, or None if the proxy speaks for itself."""
    version, command = data[12] >> 4, data[12] & 15
    if version != VERSION or command not in (COMMAND_PROXY, COMMAND_LOCAL):
        raise _bad("its version is not known")
    if command == COMMAND_LOCAL or data[13] not in FAMILIES:
        return None
    family, n = FAMILIES[data[13]]
    if len(data) < HEAD_BYTES + 2 * n + 4:
        raise _bad("its header is too short for its addresses")
    host = socket.inet_ntop(family, data[HEAD_BYTES : HEAD_BYTES + n])
    at = HEAD_BYTES + 2 * n
    return str(_plain(host)), int.from_bytes(data[at : at + 2], "big")
