"""Parses the text of --models-preset into sections and keys. Pure functions; any thread. Must not know any key.

The grammar is llama-server's: each line is `[section]`, `key = value`, a comment or blank. Sections and keys begin in
the first column; comments may be indented. A value ends at the first ; or #, because there are no quotes, escapes or
continued lines. Of two sections with the same name, the later one replaces the other.
"""

from __future__ import annotations

import re

import msgspec

from llamad.models.catalogue.errors import CatalogueError
from llamad.models.hub.names import shard_of

EVERY_MODEL = "*"  # the section that applies to all models
UNNAMED = "default"  # the section of keys that stand before any header

_NEWLINE = re.compile(r"\r\n|\n|\r")
_HEADER = re.compile(r"\[[ \t]*([^\]]+)\][ \t]*(?:[;#].*)?")
_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=[ \t]*([^;#]*).*", re.ASCII | re.DOTALL)
_NOTHING = re.compile(r"[ \t]*(?:[;#].*)?", re.DOTALL)


class Value(msgspec.Struct, frozen=True):
    text: str
    line: int  # the first line is 1


class Section(msgspec.Struct, frozen=True):
    """A section and its keys, in the order of the file. Of a key that is given twice, the later value stays."""

    name: str
    line: int
    values: dict[str, Value]


def parse(text: str, path: str) -> dict[str, Section]:
    """Return the sections by name. `path` is for messages. Raises CatalogueError."""
    sections: dict[str, Section] = {}
    current: Section | None = None
    for i, line in enumerate(_NEWLINE.split(text), 1):
        if "\0" in line:
            raise _error(path, i, "a zero byte is not text; is this an INI file?")
        if _NOTHING.fullmatch(line):
            continue
        header = _HEADER.fullmatch(line)
        if header is not None:
            current = Section(_name(header[1].rstrip(" \t"), path, i), i, {})
            sections[current.name] = current
            continue
        key = _KEY.fullmatch(line)
        if key is None:
            raise _error(path, i, _wrong(line))
        if current is None:
            current = sections[UNNAMED] = Section(UNNAMED, i, {})
        current.values.pop(key[1], None)  # so that the key moves to its new place
        current.values[key[1]] = Value(key[2].rstrip(" \t"), i)
    return sections


def _name(name: str, path: str, line: int) -> str:
    if not name or not name.isprintable():
        raise _error(path, line, "the section's name is empty or has control characters")
    if name in (EVERY_MODEL, UNNAMED):
        return name
    return canonical(name)


def canonical(name: str) -> str:
    """Return a model's name with its quantization as the cache writes it: repo:Q4_K_XL for repo:ud-q4_k_xl."""
    repo, colon, tag = name.rpartition(":")
    if not colon:
        return name
    shard = shard_of(f"-{tag}.gguf")
    return f"{repo}:{shard.quant if shard is not None and shard.quant else tag.upper()}"


def _wrong(line: str) -> str:
    shown = line.strip()[:60]
    if line[0] in " \t":
        return f"'{shown}' is indented; keys and [sections] begin in the first column"
    if line[0] == "[":
        return f"'{shown}' is not a section; write [name], and nothing else but a comment"
    return f"'{shown}' is not [section], key = value, or a comment (; or #)"


def _error(path: str, line: int, message: str) -> CatalogueError:
    return CatalogueError(f"{path}, line {line}: {message}")
