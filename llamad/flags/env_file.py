"""Parses the file of --env-file: one variable per line, in the syntax of systemd's EnvironmentFile=.

Runs at start-up and, on a reload, in a thread. Must not know a variable. A line that systemd would read differently is
an error.
"""

from __future__ import annotations

import re

import msgspec

FILE_MAX = 1 << 20

_LINE_END = re.compile(r"\r\n|\r|\n")
_ASSIGNMENT = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL).fullmatch
_SINGLE = re.compile(r"'([^']*)'").fullmatch
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"').fullmatch
_ESCAPE = re.compile(r'\\(["\\$`])')
_COMMENT = ("#", ";")


class Line(msgspec.Struct, frozen=True):
    """One variable. `source` has its file, line and name, for messages."""

    source: str
    text: str


def read(path: str) -> dict[str, Line]:
    """Return the variables of a file. If a name occurs twice, the later line wins. Raises ValueError with the number of
    the line that is wrong."""
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_MAX + 1)
    except OSError as error:
        raise ValueError(f"--env-file {path}: {error.strerror}") from None
    if len(data) > FILE_MAX:
        raise ValueError(f"--env-file {path} has more than {FILE_MAX} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"--env-file {path} is not UTF-8") from None
    variables: dict[str, Line] = {}
    for number, line in enumerate(_LINE_END.split(text), 1):
        try:
            pair = _pair(line)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from None
        if pair is not None:
            variables[pair[0]] = Line(f"{path}:{number}: {pair[0]}", pair[1])
    return variables


def _pair(line: str) -> tuple[str, str] | None:
    """Return the name and the value of a line, or None if it has none. Errors do not quote the value, which may be a
    secret."""
    if not line.strip() or line.lstrip().startswith(_COMMENT):
        return None
    if "\0" in line:
        raise ValueError("a line has a NUL byte")
    assignment = _ASSIGNMENT(line)
    if assignment is None:
        raise ValueError("expected NAME=value, a comment or an empty line")
    name, value = assignment[1], assignment[2].strip()
    return name, _unquoted(name, value)


def _unquoted(name: str, value: str) -> str:
    if value.startswith("'"):
        literal = _SINGLE(value)
        if literal is None:
            raise ValueError(f"{name}: the value must end with the quote it begins with, on the same line")
        return literal[1]
    if value.startswith('"'):
        quoted = _DOUBLE(value)
        if quoted is None:
            raise ValueError(f"{name}: the value must end with the quote it begins with, on the same line")
        return _ESCAPE.sub(r"\1", quoted[1])
    if "\\" in value:
        raise ValueError(f"{name}: put a value with a backslash in single quotes")
    return value
