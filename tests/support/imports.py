"""Reads the project's imports and cimports as text, so that tests can check which way they point."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUFFIXES = (".py", ".pyi", ".pyx", ".pxd")

# "from a.b import (c, d as e)", "cimport a.b"; a parenthesis may span lines.
_FROM = re.compile(r"^[ \t]*from[ \t]+([\w.]+)[ \t]+c?import[ \t]+(\([^)]*\)|[^\n#]*)", re.MULTILINE)
_PLAIN = re.compile(r"^[ \t]*c?import[ \t]+([\w., \t]+)", re.MULTILINE)


@dataclass(frozen=True)
class Arrow:
    """`source` imports `target`: both dotted names of modules."""

    source: str
    target: str


def folder(module: str) -> str:
    return module.rpartition(".")[0]


def modules(root: Path = ROOT) -> dict[str, list[Path]]:
    """Every module of the package with its files: what Python, Cython and the stubs say of it."""
    files: dict[str, list[Path]] = {}
    for base in (root, root / "ext"):
        for path in sorted((base / "llamad").rglob("*")):
            if path.suffix in SUFFIXES:
                parts = path.relative_to(base).with_suffix("").parts
                files.setdefault(".".join(parts), []).append(path)
    return files


def _names(text: str) -> list[str]:
    return [one.split(" as ")[0].strip() for one in text.strip("() \n").split(",") if one.strip()]


def _targets(text: str, known: set[str]) -> set[str]:
    imported = {name for names in _PLAIN.findall(text) for name in _names(names)}
    for package, names in _FROM.findall(text):
        for name in _names(names):
            # A module of the package, or a name that the module or the package's __init__ defines.
            inner = f"{package}.{name}"
            imported.add(inner if inner in known else package)
    return {name if name in known else f"{name}.__init__" for name in imported} & known


def arrows(root: Path = ROOT) -> set[Arrow]:
    known = modules(root)
    return {
        Arrow(module, target)
        for module, paths in known.items()
        for path in paths
        for target in _targets(path.read_text(encoding="utf-8"), set(known))
        if target != module
    }


def circles(edges: set[tuple[str, str]]) -> list[list[str]]:
    """Groups of names that reach each other."""
    reach: dict[str, set[str]] = {}
    for a, b in edges:
        reach.setdefault(a, set()).add(b)
        reach.setdefault(b, set())
    order, at, low, stack = [0], {}, {}, []
    loops: list[list[str]] = []

    def visit(name: str) -> None:
        at[name] = low[name] = order[0]
        order[0] += 1
        stack.append(name)
        for other in reach[name]:
            if other not in at:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], at[other])
        if low[name] == at[name]:
            group = []
            while True:
                group.append(stack.pop())
                if group[-1] == name:
                    break
            if len(group) > 1:
                loops.append(sorted(group))

    for name in reach:
        if name not in at:
            visit(name)
    return loops
