"""The kinds of network values: addresses, host names, origins, paths of URLs.

Runs at start-up on the main thread. Must not know any flag.
"""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import ClassVar

from llamad.flags.types.kinds import Kind, Text


class Host(Kind[str], frozen=True):
    """One address or name to listen on, or the path of a Unix socket."""

    metavar: ClassVar[str] = "HOST"

    def read(self, text: str) -> str:
        if not text or any(character.isspace() for character in text):
            raise ValueError(f"'{text}' is not an address; use for example 127.0.0.1 or /run/llamad.sock")
        return text


class Endpoint(Kind[str], frozen=True):
    """HOST:PORT to connect to. HOST is a name or an IPv4 address, because llama.cpp's RPC supports no others."""

    metavar: ClassVar[str] = "HOST:PORT"

    def read(self, text: str) -> str:
        host, _, port = text.rpartition(":")
        is_port = port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 1 << 16
        if not is_port or not re.fullmatch(r"[a-z0-9_.-]{1,253}", host, re.ASCII | re.IGNORECASE):
            raise ValueError(
                f"'{text}' is not HOST:PORT with a name or an IPv4 address, for example 192.168.0.2:50052"
            )
        return f"{host}:{int(port)}"


class HostName(Kind[str], frozen=True):
    """A host name without a port; or "*" for any."""

    metavar: ClassVar[str] = "NAME"

    def read(self, text: str) -> str:
        if text != "*" and not re.fullmatch(r"[a-z0-9_.-]+", text, re.ASCII | re.IGNORECASE):
            raise ValueError(
                f"'{text}' is not a host name; write it without scheme and port, as llm.example.com"
            )
        return text


class Network(Kind[str], frozen=True):
    """An address, a network, or "unix"."""

    metavar: ClassVar[str] = "NETWORK"

    def read(self, text: str) -> str:
        if text == "unix":
            return text
        try:
            return str(ip_network(text))
        except ValueError:
            raise ValueError(
                f"'{text}' is not an address, a network or unix; write for example 10.0.0.0/8"
            ) from None


class PathPrefix(Kind[str], frozen=True):
    """The beginning of a URL's path. "/" and an empty text mean none."""

    metavar: ClassVar[str] = "PATH"

    def read(self, text: str) -> str:
        path = text.strip("/")
        if not re.fullmatch(r"(?:[a-z0-9._~-]+(?:/[a-z0-9._~-]+)*)?", path, re.ASCII | re.IGNORECASE):
            raise ValueError(f"'{text}' is not a path; write for example /llm")
        return f"/{path}" if path else ""


class HttpTokens(Kind[str], frozen=True):
    """Comma-separated methods or headers, as in HTTP."""

    metavar: ClassVar[str] = "NAME,..."

    def read(self, text: str) -> str:
        if not re.fullmatch(
            r"[!#$%&'*+.^_`|~0-9A-Za-z-]+(\s*,\s*[!#$%&'*+.^_`|~0-9A-Za-z-]+)*", text, re.ASCII
        ):
            raise ValueError(f"'{text}' is not a list of names; write for example GET, POST")
        return text


class Origin(Kind[str], frozen=True):
    """A web origin: scheme, host and an optional port, or a word that stands for several origins."""

    metavar: ClassVar[str] = "ORIGIN"
    words: ClassVar[tuple[str, ...]] = ("*", "auto", "localhost", "null")

    def read(self, text: str) -> str:
        if text not in self.words and not re.fullmatch(
            r"[a-z][a-z0-9+.-]*://[^\s/]+", text, re.ASCII | re.IGNORECASE
        ):
            raise ValueError(f"'{text}' is not an origin; use for example http://localhost:3000")
        return text


class Url(Text, frozen=True):
    """The URL of a file to download."""

    metavar: ClassVar[str] = "URL"
    secret_error: ClassVar[str] = "the address must begin with http:// or https://"

    def read(self, text: str) -> str:
        if not text.startswith(("http://", "https://")):
            raise ValueError(self.secret_error)
        return text
