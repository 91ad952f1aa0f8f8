"""The description of a load's progress.

Plain data, which host.py makes on the event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from llamad.models.model_download import ModelDownload

Stage = Literal["download", "workers", "memory", "load"]

_STAGES: dict[Stage, str] = {
    "download": "downloading the model",
    "workers": "waiting for RPC workers",
    "memory": "waiting for memory",
    "load": "loading model",
}


class LoadProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of a load as /health shows it. Numbers that are not known are None."""

    stage: Stage
    percent: int | None = None
    n_bytes: int | None = None
    n_bytes_total: int | None = None
    seconds_left: int | None = None

    def text(self) -> str:
        what = _STAGES[self.stage]
        return what if self.percent is None else f"{what}: {self.percent} %"


def progress_of(fetching: ModelDownload | None, stage: Stage, percent: int) -> LoadProgress:
    """Return the progress of a load. If its files are not being downloaded (`fetching`), it is in this stage; percent
    is the part of the weights that it has read (-1: none)."""
    if fetching is None:
        return LoadProgress(stage, percent if stage == "load" and percent >= 0 else None)
    meter = fetching.meter
    if meter is None or not meter.done:
        return LoadProgress("download")
    return LoadProgress("download", meter.percent, meter.done, meter.total or None, meter.seconds_left)
