"""Owns the small value types that a flag can hold besides numbers and text.

Runs at start-up on the main thread. Must not know the table, the parser or llama.cpp.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class KvOverride(NamedTuple):
    """One `--override-kv KEY=TYPE:VALUE`; `type` names the Python type that `value` has."""

    key: str
    type: Literal["int", "float", "bool", "str"]
    value: int | float | bool | str


class ScaledFile(NamedTuple):
    """A file and how strongly it acts."""

    path: str
    scale: float


class AdapterFile(NamedTuple):
    """One `--lora [NAME=]PATH`. One with a name acts only for requests that ask for it."""

    path: str
    scale: float
    name: str


class Placement(NamedTuple):
    """One `--override-tensor PATTERN=BUFFER`: the buffer for tensors whose names match the pattern."""

    pattern: str
    buffer: str
