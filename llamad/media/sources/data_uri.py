"""Decodes data that a request contains itself: data: URIs (RFC 2397) and plain base64. Pure functions."""

from __future__ import annotations

import binascii
import re
from urllib.parse import unquote_to_bytes

from llamad.media.sources.errors import SourceError

ESCAPES_MAX = 1 << 18  # decoding each one creates a Python object
STEP = 1 << 20
_URI = re.compile(
    r"data:(?P<type>[^;,]*)(?P<parameters>(?:;[^;,]*)*),(?P<data>.*)", re.DOTALL | re.IGNORECASE
)


def from_uri(uri: str, families: tuple[str, ...]) -> bytes:
    """Return the bytes of a data: URI whose type is in one of the families, "image" or "audio". Raises SourceError."""
    match = _URI.fullmatch(uri)
    if match is None:
        raise SourceError("a data: URI must be data:TYPE;base64,DATA")
    family = match["type"].split("/", 1)[0].strip().lower()
    if family not in families:
        types = " or ".join(f"{one}/" for one in families)
        raise SourceError(f"the type of a data: URI must begin with {types}, not with {match['type'][:40]!r}")
    if match["data"].count("%") > ESCAPES_MAX:
        raise SourceError(f"a data: URI may hold at most {ESCAPES_MAX} %-escapes; send it as base64")
    if match["parameters"].lower().endswith(";base64"):
        return from_base64(unquote_to_bytes(match["data"]) if "%" in match["data"] else match["data"])
    return unquote_to_bytes(match["data"])


def from_base64(text: str | bytes) -> bytes:
    """Decode base64, standard or URL-safe, with or without padding; white space is ignored. Raises SourceError."""
    data = text.encode("ascii", "replace") if isinstance(text, str) else text
    data = data.translate(_URL_SAFE, b" \t\r\n=")
    data += b"=" * (-len(data) % 4)
    try:
        # It is decoded in steps, so that other threads can run in between.
        steps = range(0, len(data), STEP)
        return b"".join([binascii.a2b_base64(data[i : i + STEP], strict_mode=True) for i in steps])
    except (binascii.Error, ValueError):
        raise SourceError("it is not base64") from None


_URL_SAFE = bytes.maketrans(b"-_", b"+/")
