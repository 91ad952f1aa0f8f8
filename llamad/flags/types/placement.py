"""The kinds of values that place tensors in buffers and threads on CPUs.

Runs at start-up on the main thread. Must not know any flag.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from llamad.flags.types.kinds import Kind
from llamad.flags.types.values import Placement

CPUS_MAX = 512  # the size of ggml's masks


class Placements(Kind[tuple[Placement, ...]], frozen=True):
    """PATTERN=BUFFER, comma-separated. It is split as in llama.cpp, so a pattern cannot contain a comma or "="."""

    metavar: ClassVar[str] = "PATTERN=BUFFER"

    def read(self, text: str) -> tuple[Placement, ...]:
        return tuple(self._one(part) for part in text.split(","))

    def write(self, value: Any) -> str:
        return ",".join(f"{one.pattern}={one.buffer}" for one in value)

    @staticmethod
    def _one(text: str) -> Placement:
        pattern, _, buffer = text.partition("=")
        if not pattern or not buffer:
            raise ValueError(f"'{text}' is not PATTERN=BUFFER, for example ffn_.*_exps=CPU")
        return Placement(pattern, buffer)


class CpuMask(Kind[tuple[int, ...]], frozen=True):
    """CPUs as the bits of a hexadecimal number, in ascending order."""

    metavar: ClassVar[str] = "HEX"

    def read(self, text: str) -> tuple[int, ...]:
        digits = re.fullmatch(r"(?:0x)?([0-9a-f]+)", text, re.ASCII | re.IGNORECASE)
        if digits is None:
            raise ValueError(f"'{text[:40]}' is not hexadecimal; f means the CPUs 0 to 3")
        if len(digits[1]) > CPUS_MAX // 4:
            raise ValueError(f"it has {len(digits[1])} digits; at most {CPUS_MAX} CPUs are possible")
        mask = int(digits[1], 16)
        return tuple(cpu for cpu in range(CPUS_MAX) if mask >> cpu & 1)

    def write(self, value: Any) -> str:
        return f"{sum(1 << cpu for cpu in value):x}"


class CpuRange(Kind[tuple[int, ...]], frozen=True):
    """FIRST-LAST, where either number may be left out."""

    metavar: ClassVar[str] = "FIRST-LAST"

    def read(self, text: str) -> tuple[int, ...]:
        ends = re.fullmatch(r"([0-9]{0,4})-([0-9]{0,4})", text, re.ASCII)
        if ends is None:
            raise ValueError(f"'{text[:40]}' is not FIRST-LAST; use for example 0-7")
        first, last = int(ends[1] or 0), int(ends[2] or CPUS_MAX - 1)
        if not first <= last < CPUS_MAX:
            raise ValueError(f"{text} is out of range; use 0-{CPUS_MAX - 1} at most, the smaller one first")
        return tuple(range(first, last + 1))

    def write(self, value: Any) -> str:
        return f"{value[0]}-{value[-1]}"
