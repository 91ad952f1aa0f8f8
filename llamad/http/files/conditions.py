"""Owns what a request's headers ask of a file: whether the client has it already, which part, and how encoded.
Pure functions after RFC 9110; a header that cannot be read is ignored, as the RFC wants it."""

from __future__ import annotations

import re
from email.utils import formatdate, parsedate_to_datetime

_TAG = re.compile(r'\s*(W/)?("[\x21\x23-\x7e\x80-\xff]*")\s*(?:,|$)')
_RANGE = re.compile(r"bytes=\s*(?:([0-9]{1,18})-([0-9]{0,18})|-([0-9]{1,18}))\s*").fullmatch
_QUALITY = re.compile(r"\s*q\s*=\s*(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)\s*", re.IGNORECASE).fullmatch


class Unsatisfiable(Exception):
    """The range begins behind the file's end."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size


def http_date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)


def _seconds(date: str) -> int | None:
    try:
        return int(parsedate_to_datetime(date).timestamp())
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def is_unchanged(headers: dict[str, str], tag: str, modified: int) -> bool:
    """Whether the client's copy is still right. A date counts only where no tag is given."""
    wanted = headers.get("if-none-match")
    if wanted is not None:
        return wanted.strip() == "*" or tag.removeprefix("W/") in _tags(wanted)
    since = _seconds(headers.get("if-modified-since", ""))
    return since is not None and modified <= since


def _tags(text: str) -> list[str]:
    """The tags of a list, weak ones as strong ones; those before the first mistake."""
    found, pos = [], 0
    while (match := _TAG.match(text, pos)) is not None:
        found.append(match[2])
        pos = match.end()
    return found


def wanted_range(
    headers: dict[str, str], size: int, tag: str, modified: int, now: float
) -> tuple[int, int] | None:
    """Start and stop of the part that is asked for; None: all of it. Several parts at once are answered with all of
    it, which is allowed. Raises Unsatisfiable."""
    match = _RANGE(headers.get("range", ""))
    if match is None or not _has_same(headers.get("if-range"), tag, modified, now):
        return None
    first, last, suffix = match.groups()
    if suffix is not None:
        start, stop = max(0, size - int(suffix)), size
    else:
        start, stop = int(first), min(size, int(last) + 1 if last else size)
        if last and int(last) < start:
            return None
    if start >= size:
        raise Unsatisfiable(size)
    return start, stop


def _has_same(wanted: str | None, tag: str, modified: int, now: float) -> bool:
    """If-Range: whether the client's first part is of this very file. A file of this second may change within it, so
    that its date says nothing."""
    if wanted is None:
        return True
    if wanted.startswith(('"', "W/")):
        return wanted == tag and not tag.startswith("W/")
    return _seconds(wanted) == modified and now - modified > 1


def accepts_gzip(text: str) -> bool:
    """Whether Accept-Encoding allows gzip, by its name or by "*"."""
    named: bool | None = None
    any_other = False
    for item in text.split(","):
        name, *parameters = item.split(";")
        allowed = _quality(parameters) > 0
        if name.strip().lower() in ("gzip", "x-gzip"):
            named = allowed
        elif name.strip() == "*":
            any_other = allowed
    return any_other if named is None else named


def _quality(parameters: list[str]) -> float:
    if not parameters:
        return 1.0
    match = _QUALITY(parameters[0])
    return float(match[1]) if match is not None else 0.0
