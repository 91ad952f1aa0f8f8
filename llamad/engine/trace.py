"""Owns the step trace: one JSON line for every engine step, for `--step-trace FILE`.

Written on the event loop through a buffered file. Must not be on when nobody asked for it.
"""

from __future__ import annotations

import json
from typing import Any


class StepTrace:
    """Fields: step, t_us, plan_us, decode_us, sample_us, emit_us, budget, n_tokens, n_writing, slots,
    wait_us (for the device, after decode_us), n_fillers.
    `slots` lists [slot, tokens in this step, whether it is writing]."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "w", encoding="utf-8", buffering=1 << 16)  # noqa: SIM115 - closed by close()

    def write(self, event: tuple[Any, ...]) -> None:
        """One step, as core.poll() gives it."""
        names = (
            "step",
            "t_us",
            "plan_us",
            "decode_us",
            "sample_us",
            "emit_us",
            "budget",
            "n_tokens",
            "n_writing",
            "slots",
            "wait_us",
            "n_fillers",
        )
        self._file.write(json.dumps(dict(zip(names, event[2:], strict=True)), separators=(",", ":")) + "\n")

    def close(self) -> None:
        self._file.close()
