"""The description of a load's progress.

Plain data, which host.py makes on the event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from llamad.models.model_download import ModelDownload

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


def progress_of(fetching: ModelDownload | None, waits: bool, percent: int) -> LoadProgress:
    """Return the progress of a load whose files are being downloaded (`fetching`), that waits for RPC workers, or that
    has read so many percent of the weights (-1: none)."""
    if fetching is None:
        return LoadProgress("workers") if waits else LoadProgress("load", percent if percent >= 0 else None)
    meter = fetching.meter
    if meter is None or not meter.done:
        return LoadProgress("download")
    return LoadProgress("download", meter.percent, meter.done, meter.total or None, meter.seconds_left)
