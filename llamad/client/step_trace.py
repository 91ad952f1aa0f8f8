"""Owns the step trace: a JSON line per engine step, for `--step-trace FILE`.

Written on the event loop through a buffered file. Off unless asked for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

_ENGINE = (
    *("step", "t_us", "plan_us", "decode_us", "sample_us", "emit_us", "budget", "n_tokens", "n_writing"),
    *("slots", "wait_us", "n_fillers", "n_media"),
)
_LOOP = ("n_wakes", "wake_us", "write_us")


class StepTrace:
    """The engine's fields: step, t_us, plan_us, decode_us, wait_us (for the device, after decode_us), sample_us,
    emit_us, budget, n_tokens, n_writing, n_fillers (padding tokens, removed again), n_media (rows of an image or a
    sound, decoded first), slots ([slot, tokens in this step with padding, whether it is decoding]).

    The event loop's: n_wakes, wake_us, write_us, of all its iterations since the line before. One iteration may take
    several steps; the first, which waited longest, gets all of it. So the sums over all lines are those of /metrics.
    """

    def __init__(self, path: str) -> None:
        self._file = open(path, "w", encoding="utf-8", buffering=1 << 16)  # noqa: SIM115 - closed by close()
        self._told = (0, 0, 0)

    def write(self, steps: Sequence[tuple[Any, ...]], parts: tuple[int, int, int]) -> None:
        """The steps of one iteration, from core.poll(), and core.parts() after their responses were written."""
        since = [now - before for now, before in zip(parts, self._told, strict=True)]
        self._told = parts
        for event in steps:
            line = dict(zip(_ENGINE, event[2:], strict=True)) | dict(zip(_LOOP, since, strict=True))
            self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
            since = [0, 0, 0]

    def close(self) -> None:
        self._file.close()
