"""Splits a multipart/form-data body (RFC 7578) into its fields. Pure functions; any thread.

The body is complete and its size is already limited. Only headers and search windows are copied, and a worker holds the
GIL for one window at a time. A body that two parsers could read in two ways is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

PARTS_MAX = 64
HEADERS_MAX = 4096  # bytes of one field's headers
WINDOW = 1 << 20
_CRLF = b"\r\n"
_TYPE = "multipart/form-data"
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER = re.compile(rf'\s*;\s*({_TOKEN})\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;"]+)', re.DOTALL)
_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")
_HEADER = re.compile(rf"({_TOKEN}):(.*)")
_PLAIN = ("", "7bit", "8bit", "binary")


class FormError(Exception):
    """A sentence for the client that says what is wrong with the body."""


class FormPart(msgspec.Struct, frozen=True):
    """One field of the form. `data` is a view of the body."""

    name: str
    is_file: bool  # it has a file name
    data: memoryview


def is_form(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == _TYPE


def boundary_of(content_type: str) -> bytes:
    """Return the boundary that a Content-Type names. Raises FormError."""
    if not is_form(content_type):
        raise FormError(f"the body must be {_TYPE}")
    boundary = _parameters(content_type.partition(";")[2], "Content-Type").get("boundary", "")
    if not _BOUNDARY.fullmatch(boundary):
        raise FormError("the Content-Type must name a boundary of 1 to 70 characters")
    return boundary.encode("ascii")


def parts(body: bytes | memoryview, boundary: bytes) -> Iterator[FormPart]:
    """Yield the fields in order. Raises FormError, maybe after some of them."""
    view = memoryview(body)
    first = b"--" + boundary
    at = -2 if view[: len(first)] == first else _find(view, _CRLF + first, 0)
    if at == -1:
        raise FormError("the body does not begin with the boundary that its Content-Type names")
    start = at + 2 + len(first)
    n_parts = 0
    while (begin := _after_boundary(view, start)) is not None:
        n_parts += 1
        if n_parts > PARTS_MAX:
            raise FormError(f"the form has more than {PARTS_MAX} fields")
        headers, begin = _headers(view, begin)
        # In an empty field, the CRLF of the blank line is also the one before the boundary.
        end = _find(view, _CRLF + first, begin - 2)
        if end < 0:
            raise FormError("the form ends without its closing boundary")
        yield _part(headers, view[begin : max(begin, end)])
        start = end + 2 + len(first)


def _find(view: memoryview, what: bytes, start: int) -> int:
    while start < len(view):
        at = bytes(view[start : start + WINDOW + len(what) - 1]).find(what)
        if at >= 0:
            return start + at
        start += WINDOW
    return -1


def _after_boundary(view: memoryview, start: int) -> int | None:
    """Return where the next field begins, or None after the closing boundary."""
    rest = bytes(view[start : start + 64])
    if rest.startswith(b"--"):
        return None
    line = rest.lstrip(b" \t")
    if not line.startswith(_CRLF):
        if len(line) < 2:
            raise FormError("the form ends without its closing boundary")
        raise FormError("a boundary must end its line")
    return start + len(rest) - len(line) + 2


def _headers(view: memoryview, begin: int) -> tuple[dict[str, str], int]:
    """Return the headers of a field, and where its data begins."""
    head = bytes(view[begin : begin + HEADERS_MAX])
    end = head.find(_CRLF + _CRLF)
    if end < 0:
        raise FormError(f"a field's headers do not end within {HEADERS_MAX} bytes")
    headers: dict[str, str] = {}
    try:
        lines = head[:end].decode("utf-8").split("\r\n")
    except UnicodeDecodeError:
        raise FormError("a field's headers are not UTF-8") from None
    for line in lines:
        match = _HEADER.fullmatch(line)
        name = match[1].lower() if match is not None else ""
        if match is None or name in headers or any(one < " " and one != "\t" for one in line):
            raise FormError("a field's headers are broken")
        headers[name] = match[2].strip()
    return headers, begin + end + 4


def _part(headers: dict[str, str], data: memoryview) -> FormPart:
    kind, _, rest = headers.get("content-disposition", "").partition(";")
    if kind.strip().lower() != "form-data":
        raise FormError("a field has no Content-Disposition: form-data")
    parameters = _parameters(rest, "Content-Disposition")
    name = parameters.get("name", "")
    if not name:
        raise FormError("a field has no name")
    encoding = headers.get("content-transfer-encoding", "").lower()
    if encoding not in _PLAIN:
        raise FormError(f"a field's Content-Transfer-Encoding is {encoding[:40]!r}; send it as it is")
    return FormPart(name, "filename" in parameters or "filename*" in parameters, data)


def _parameters(text: str, header: str) -> dict[str, str]:
    """Parse the parameters of a header, which follow its first semicolon."""
    parameters: dict[str, str] = {}
    text, at = ";" + text, 0
    while at < len(text):
        match = _PARAMETER.match(text, at)
        if match is None and not text[at:].strip(" \t;"):
            break
        if match is None or match[1].lower() in parameters:
            raise FormError(f"a {header} is broken")
        value = match[2]
        if value.startswith('"'):
            value = re.sub(r'\\([\\"])', r"\1", value[1:-1])
        parameters[match[1].lower()] = value
        at = match.end()
    return parameters
