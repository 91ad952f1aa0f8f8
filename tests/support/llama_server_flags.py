"""Owns the reading of llama-server's own flags from the pinned llama.cpp's sources: names, values, variables.

Runs in tests, over the archive that the build fetched or the tree that LLAMAD_LLAMA_CPP names. Must not fetch, and
must not keep a copy.
"""

from __future__ import annotations

import os
import re
import tarfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

import pytest

from recipe import cache as recipe_cache
from recipe import pin

Value = Literal["switch", "integer", "number", "text", "two texts"]

_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_STRING = re.compile(r'"((?:\\.|[^"\\\n])*)"')
_LAMBDA = re.compile(r"\[[^\]]*\]\s*\(([^)]*)\)")
_SERVERS = {"LLAMA_EXAMPLE_COMMON", "LLAMA_EXAMPLE_SERVER"}
_OPENING, _CLOSING = "({[", ")}]"


@dataclass(frozen=True, slots=True)
class ServerFlag:
    """One flag of llama-server."""

    names: tuple[str, ...]
    off: tuple[str, ...]  # the negations
    value: Value
    words: tuple[str, ...]  # values that the program compares the text with
    env: str | None
    examples: frozenset[str]  # the programs that have it
    excludes: frozenset[str]

    @property
    def variables(self) -> tuple[str, ...]:
        """The flag's variables; a negation has one of its own."""
        if self.env is None:
            return ()
        return (self.env, self.env.replace("LLAMA_ARG_", "LLAMA_ARG_NO_")) if self.off else (self.env,)


def source_text(path: str) -> str:
    """A file of the sources that llamad is built from; skips the test where they are not on this machine."""
    named = os.environ.get("LLAMAD_LLAMA_CPP")
    if named and Path(named).is_dir():
        for tree in (Path(named), Path(named) / "vendor" / "llama.cpp"):
            if (tree / path).is_file():
                return (tree / path).read_text(encoding="utf-8")
    archive = Path(named) if named else recipe_cache.root() / "downloads" / pin.LLAMA_CPP.filename
    if not archive.is_file():
        pytest.skip(f"llama.cpp's sources are not here: no {archive}")
    return _from_archive(archive, path)


@cache
def _from_archive(archive: Path, path: str) -> str:
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.name.endswith(f"/{path}") and (file := tar.extractfile(member)) is not None:
                return file.read().decode()
    pytest.fail(f"{archive} has no {path}")


@cache
def server_flags() -> tuple[ServerFlag, ...]:
    """Every flag that the pinned llama-server takes, in the order of common/arg.cpp."""
    flags = _read(source_text("common/arg.cpp"))
    return tuple(
        flag for flag in flags if flag.examples & _SERVERS and "LLAMA_EXAMPLE_SERVER" not in flag.excludes
    )


@cache
def documented_defaults() -> dict[str, str]:
    """The defaults that llama-server's README states in a form that can be typed, by the flag's first name."""
    options = {}
    for row in re.findall(r"^\| `(-[^`]*)` \| (.*) \|$", source_text("tools/server/README.md"), re.MULTILINE):
        default = re.search(r"default: ('[^']+'|[\w.;+-]+)(?=[,;.)<]|$| -)", row[1])
        if default is not None:
            options[row[0].split()[0].rstrip(",")] = default[1].strip("'").rstrip(".;")
    return options


def _read(text: str) -> list[ServerFlag]:
    text = _COMMENT.sub(lambda match: match[0] if match[0].startswith('"') else " ", text)
    lists = {
        name: frozenset(re.findall(r"LLAMA_EXAMPLE_\w+", body))
        for name, body in re.findall(r"initializer_list<enum llama_example> (\w+) = \{([^}]*)\}", text)
    }
    flags = []
    for start in re.finditer(r"\badd_opt\(", text):
        if text[: start.start()].endswith("auto "):
            continue
        statement = text[start.end() : _closing(text, start.end())]
        flags.append(_flag(statement, lists))
    return flags


def _flag(statement: str, lists: dict[str, frozenset[str]]) -> ServerFlag:
    begin = statement.index("common_arg(") + len("common_arg(")
    end = _closing(statement, begin)
    arguments = _arguments(statement[begin:end])
    braces = [one for one in arguments if one.startswith("{")]
    head = _LAMBDA.search(arguments[-1])
    assert head is not None, statement
    flag = ServerFlag(
        names=tuple(_STRING.findall(braces[0])),
        off=tuple(_STRING.findall(braces[1])) if len(braces) > 1 else (),
        value=_value(head[1], arguments[-1]),
        words=_words(head[1], arguments[-1]),
        env=None,
        examples=frozenset({"LLAMA_EXAMPLE_COMMON"}),
        excludes=frozenset(),
    )
    for setter, inside in re.findall(r"\.set_(\w+)\(([^)]*)\)", statement[end:]):
        if setter == "env":
            flag = replace(flag, env=_STRING.findall(inside)[0])
        elif setter in ("examples", "excludes"):
            programs = lists.get(inside.strip()) or frozenset(re.findall(r"LLAMA_EXAMPLE_\w+", inside))
            flag = (
                replace(flag, examples=programs) if setter == "examples" else replace(flag, excludes=programs)
            )
    return flag


def _value(parameters: str, body: str) -> Value:
    rest = [one.strip() for one in parameters.split(",")[1:]]
    if not rest or rest[0].startswith("bool"):
        return "switch"
    if len(rest) == 2:
        return "two texts"
    if rest[0].startswith("int"):
        return "integer"
    name = rest[0].split()[-1].lstrip("&")
    if re.search(rf"=\s*std::sto(f|d)\({name}\)", body):
        return "number"
    return "integer" if re.search(rf"=\s*std::sto(i|ul|ull|l)\({name}\)", body) else "text"


def _words(parameters: str, body: str) -> tuple[str, ...]:
    name = parameters.split()[-1].lstrip("&") if parameters else ""
    accepted = [word for word in re.findall(rf'\b{name} == "([^"]*)"', body) if word]
    for test, words in (("truthy", ("on", "1")), ("falsey", ("off", "0")), ("autoy", ("auto", "-1"))):
        accepted += words if f"is_{test}({name})" in body else ()
    return tuple(accepted)


def _closing(text: str, start: int) -> int:
    """Where the bracket that was opened before `start` closes."""
    depth = 1
    for index, character in _code(text, start):
        depth += (character in _OPENING) - (character in _CLOSING)
        if depth == 0:
            return index
    raise ValueError("a bracket is never closed")


def _arguments(text: str) -> list[str]:
    found, depth, last = [], 0, 0
    for index, character in _code(text, 0):
        depth += (character in _OPENING) - (character in _CLOSING)
        if character == "," and depth == 0:
            found.append(text[last:index].strip())
            last = index + 1
    return [*found, text[last:].strip()]


def _code(text: str, start: int) -> list[tuple[int, str]]:
    """The brackets and commas outside of strings and characters."""
    pattern = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\])\'|[(){}\[\],]')
    return [(m.start(), m[0]) for m in pattern.finditer(text, start) if len(m[0]) == 1]
