"""What the scheduler counts for GET /metrics. Written by the scheduler only."""

from __future__ import annotations

from collections import Counter

from llamad.base.histogram import Histogram
from llamad.models.fleet.effects import StopReason

_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 300.0, 600.0)


class Counters:
    """`waits` counts the requests that were admitted after they had waited; those that did not wait are not in it."""

    def __init__(self) -> None:
        self.loads: Counter[str] = Counter()  # by model
        self.failures: Counter[str] = Counter()  # by model
        self.stops: Counter[tuple[str, StopReason]] = Counter()  # by model and reason
        self.refusals: Counter[tuple[str, int]] = Counter()  # by model and status
        self.n_drains_cancelled = 0
        self.waits = Histogram(
            "llamad:model_wait_seconds", "Wait of a request until its model is loaded.", _SECONDS
        )
