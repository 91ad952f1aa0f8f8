"""The description of a load's progress.

Plain data, which host.py makes on the event loop.
"""

from __future__ import annotations

from typing import Literal

import msgspec

_STAGES = {"download": "downloading the model", "workers": "waiting for RPC workers", "load": "loading model"}


class LoadProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of a load as /health shows it. Numbers that are not known are None."""

    stage: Literal["download", "workers", "load"]
    percent: int | None = None
    n_bytes: int | None = None
    n_bytes_total: int | None = None
    seconds_left: int | None = None

    def text(self) -> str:
        what = _STAGES[self.stage]
        return what if self.percent is None else f"{what}: {self.percent} %"
