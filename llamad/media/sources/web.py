"""Fetches http and https addresses within limits, and only from public hosts.

Runs on the event loop. A name is resolved once for each hop, and the connection goes to the address that was checked,
so that the name cannot mean another host a moment later. It uses no proxy, cookies or credentials.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable
from urllib.parse import urljoin, urlsplit

import httptools

from llamad.media.sources.errors import SourceError
from llamad.media.sources.networks import Address, is_public

REDIRECTS_MAX = 3
SECONDS_MAX = 10.0
HEAD_MAX = 1 << 15
_MOVED = (301, 302, 303, 307, 308)
_READ_BYTES = 1 << 16


class _Reply:
    """Collects a response from httptools' callbacks: its Location header and its body."""

    def __init__(self) -> None:
        self.location = ""
        self.body = bytearray()
        self.is_complete = False
        self.n_claimed = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"location":
            self.location = value.decode("latin-1")
        elif name.lower() == b"content-length" and value.isdigit():
            self.n_claimed = int(value)

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.is_complete = True


async def fetch(url: str, bytes_max: int, is_allowed: Callable[[Address], bool] = is_public) -> bytes:
    """Return the bytes of the file at the address. Raises SourceError."""
    try:
        async with asyncio.timeout(SECONDS_MAX):
            for _ in range(REDIRECTS_MAX + 1):
                reply, status = await _get(url, bytes_max, is_allowed)
                if status == 200:
                    return bytes(reply.body)
                if status not in _MOVED or not reply.location:
                    raise SourceError(f"the host answered with status {status}")
                url = urljoin(url, reply.location)
    except TimeoutError:
        raise SourceError(f"the host took more than {SECONDS_MAX:g} s") from None
    except (OSError, ssl.SSLError, UnicodeError) as error:
        raise SourceError(f"the host cannot be reached: {error}") from None
    except httptools.HttpParserError as error:
        raise SourceError(f"the host's response is not HTTP: {error}") from None
    raise SourceError(f"more than {REDIRECTS_MAX} redirects")


async def _get(url: str, bytes_max: int, is_allowed: Callable[[Address], bool]) -> tuple[_Reply, int]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise SourceError(f"it is not a valid address: {error}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise SourceError("only http:// and https:// can be fetched")
    address = await _resolve(host, port, is_allowed)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    shown = f"[{host}]" if ":" in host else host
    named = shown if parts.port is None else f"{shown}:{port}"
    head = f"GET {path} HTTP/1.1\r\nHost: {named}\r\nUser-Agent: llamad\r\nAccept: image/*, audio/*\r\n"
    if not head.isascii() or any(one in path + host for one in "\r\n \t\0"):
        raise SourceError("it is not a valid address: characters must be percent-encoded")
    secure = ssl.create_default_context() if parts.scheme == "https" else None
    reader, writer = await asyncio.open_connection(
        str(address), port, ssl=secure, server_hostname=host if secure else None, limit=HEAD_MAX
    )
    try:
        writer.write(f"{head}Accept-Encoding: identity\r\nConnection: close\r\n\r\n".encode("ascii"))
        return await _read(reader, bytes_max)
    finally:
        writer.transport.abort()


async def _read(reader: asyncio.StreamReader, bytes_max: int) -> tuple[_Reply, int]:
    reply = _Reply()
    parser = httptools.HttpResponseParser(reply)
    n_read = 0
    while not reply.is_complete:
        data = await reader.read(_READ_BYTES)
        if not data:
            break  # a body without a length ends with the connection
        n_read += len(data)
        parser.feed_data(data)
        if max(len(reply.body), reply.n_claimed) > bytes_max:
            raise SourceError(f"the file has more than {bytes_max} bytes (--media-max-bytes)")
        if n_read - len(reply.body) > HEAD_MAX + bytes_max // 4:  # headers and the framing of chunks
            raise SourceError("the host's response has too many headers")
    if not n_read:
        raise SourceError("the host closed the connection without a response")
    return reply, parser.get_status_code()


async def _resolve(host: str, port: int, is_allowed: Callable[[Address], bool]) -> Address:
    """Return one address of the host. If any of its addresses is not allowed, the host is refused: a name with both
    kinds may be an attack that counts on retries."""
    loop = asyncio.get_running_loop()
    results = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [ipaddress.ip_address(str(one[4][0]).partition("%")[0]) for one in results]
    if not addresses:
        raise SourceError(f"{host} has no address")
    if not all(is_allowed(one) for one in addresses):
        raise SourceError(f"{host} is not a public host")
    return addresses[0]
