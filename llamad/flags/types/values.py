"""The small value types that a flag can hold besides numbers and text.

Runs at start-up on the main thread. Must not know the table, the parser or llama.cpp.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class KvOverride(NamedTuple):
    """One `--override-kv KEY=TYPE:VALUE`. `type` names the Python type of `value`."""

    key: str
    type: Literal["int", "float", "bool", "str"]
    value: int | float | bool | str


class ScaledFile(NamedTuple):
    """A file and its scale."""

    path: str
    scale: float


class AdapterFile(NamedTuple):
    """One `--lora [NAME=]PATH`. An adapter with a name is used only for requests that name it."""

    path: str
    scale: float
    name: str


class Placement(NamedTuple):
    """One `--override-tensor PATTERN=BUFFER`: the buffer for tensors whose names match the pattern."""

    pattern: str
    buffer: str
