"""Owns how the progress of a load is described.

Plain data, made on the event loop by host.py and by no one else.
"""

from __future__ import annotations

from typing import Literal

import msgspec

_STAGES = {
    "download": "downloading the model",
    "workers": "waiting for RPC workers",
    "load": "loading model",
}


class LoadProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a load is, as /health shows it; in bytes and seconds, as far as they are known."""

    stage: Literal["download", "workers", "load"]
    percent: int | None = None
    n_bytes: int | None = None
    n_bytes_total: int | None = None
    seconds_left: int | None = None

    def text(self) -> str:
        what = _STAGES[self.stage]
        return what if self.percent is None else f"{what}: {self.percent} %"
