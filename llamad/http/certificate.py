"""Reads the validity period of certificates. Pure functions; any thread.

The standard library gives it only for a peer's certificate, so the few DER fields on the way to it are parsed here.
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime

import msgspec

_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_BEGIN = re.compile(rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----")
_KINDS = (b"CERTIFICATE", b"X509 CERTIFICATE", b"TRUSTED CERTIFICATE")

_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
# RFC 5280: two-digit years mean 1950 to 2049.
_CENTURY_TURNS = 50


class Validity(msgspec.Struct, frozen=True):
    """The begin and end of a certificate's validity, in seconds since 1970."""

    begin: float
    end: float


def validities(pem: bytes) -> list[Validity]:
    """Return the validity of each certificate in a PEM file, in order. Raises ValueError; its text follows the name of
    the file."""
    blocks = [match[2] for match in _BLOCK.finditer(pem) if match[1] in _KINDS]
    if len(blocks) != len(_BEGIN.findall(pem)):
        raise ValueError("ends within a certificate")
    if not blocks:
        raise ValueError("has no certificate (PEM: -----BEGIN CERTIFICATE-----)")
    try:
        return [_validity(base64.b64decode(block, validate=False)) for block in blocks]
    except (ValueError, IndexError):
        raise ValueError("has a certificate that cannot be read") from None


def _validity(der: bytes) -> Validity:
    fields = _contents(_contents(der, _SEQUENCE), _SEQUENCE)
    if fields[0] == _VERSION:
        fields = _skip(fields)
    for _ in ("serial number", "signature algorithm", "issuer"):
        fields = _skip(fields)
    times = _contents(fields, _SEQUENCE)
    return Validity(_time(times), _time(_skip(times)))


def _span(data: bytes) -> tuple[int, int]:
    """Return where the contents of the first DER element begin and end."""
    n, start = data[1], 2
    if n >= 0x80:
        start += n & 0x7F
        n = int.from_bytes(data[2:start], "big")
    if start + n > len(data):
        raise ValueError("an element is longer than its data")
    return start, start + n


def _contents(data: bytes, tag: int) -> bytes:
    if data[0] != tag:
        raise ValueError("an element of another kind")
    start, end = _span(data)
    return data[start:end]


def _skip(data: bytes) -> bytes:
    return data[_span(data)[1] :]


def _time(data: bytes) -> float:
    if data[0] == _GENERALIZED_TIME:
        text = _contents(data, _GENERALIZED_TIME).decode("ascii")
    else:
        text = _contents(data, _UTC_TIME).decode("ascii")
        text = ("19" if int(text[:2]) >= _CENTURY_TURNS else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
