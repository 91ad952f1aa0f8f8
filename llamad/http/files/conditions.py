"""Reads the headers of a request for a file: whether the client has it already, which range it asks for, which
encodings it accepts. Pure functions after RFC 9110; a header that cannot be parsed is ignored, as the RFC demands."""

from __future__ import annotations

import re
from email.utils import formatdate, parsedate_to_datetime

_TAG = re.compile(r'\s*(W/)?("[\x21\x23-\x7e\x80-\xff]*")\s*(?:,|$)')
_RANGE = re.compile(r"bytes=\s*(?:([0-9]{1,18})-([0-9]{0,18})|-([0-9]{1,18}))\s*").fullmatch
_QUALITY = re.compile(r"\s*q\s*=\s*(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)\s*", re.IGNORECASE).fullmatch


class Unsatisfiable(Exception):
    """The range begins after the file's end."""

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
    """Return whether the client's copy is up to date. Its date counts only if it sends no tag."""
    known_tags = headers.get("if-none-match")
    if known_tags is not None:
        return known_tags.strip() == "*" or tag.removeprefix("W/") in _tags(known_tags)
    since = _seconds(headers.get("if-modified-since", ""))
    return since is not None and modified <= since


def _tags(text: str) -> list[str]:
    """Return the tags of a list up to the first syntax error, without the marks of weak tags."""
    tags, pos = [], 0
    while (match := _TAG.match(text, pos)) is not None:
        tags.append(match[2])
        pos = match.end()
    return tags


def wanted_range(
    headers: dict[str, str], size: int, tag: str, modified: int, now: float
) -> tuple[int, int] | None:
    """Return the start and the stop of the range that is asked for, or None for the whole file. If several ranges are
    asked for at once, the client gets the whole file, which the RFC allows. Raises Unsatisfiable."""
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


def _has_same(condition: str | None, tag: str, modified: int, now: float) -> bool:
    """Return whether If-Range holds: the client's first part is of this version of the file. The date of a file that
    changed within the last second proves nothing, because it can change again within the same second."""
    if condition is None:
        return True
    if condition.startswith(('"', "W/")):
        return condition == tag and not tag.startswith("W/")
    return _seconds(condition) == modified and now - modified > 1


def accepts_gzip(text: str) -> bool:
    """Return whether Accept-Encoding allows gzip, by its name or by "*"."""
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
