"""Decides when an engine that has ended is started again, or that it is not. Knows nothing of processes."""

from __future__ import annotations

# If an engine has served for so long, its end is not counted as one of a series.
SOUND_SECONDS = 60.0
DELAY_MAX_SECONDS = 30.0
# Restarts of a series wait for so long at least, except for the first, also if requests went on between the ends.
WENT_ON_SECONDS = 1.0
# How many engines in a row may end before they serve, and how many may end soon after they began to serve.
N_LOADS_MAX = 4
N_ENDS_MAX = 10


class Restarts:
    """`n_total` counts the restarts since the daemon's start."""

    def __init__(self) -> None:
        self.n_total = 0
        self._n_loads = 0
        self._n_ends = 0
        self._n_soon = 0  # like _n_ends, but also if requests went on between the ends
        self._has_gone_on = False  # the engine has continued a request, so it served, ready or not

    def delay(self, served_seconds: float | None) -> float | None:
        """Return the seconds until the next start, or None to give up. `served_seconds` is how long the engine that
        ended had served, or None if it was never ready."""
        has_gone_on, self._has_gone_on = self._has_gone_on, False
        if served_seconds is None and not has_gone_on:
            self._n_loads += 1
        elif served_seconds is not None and served_seconds >= SOUND_SECONDS:
            self._n_loads = self._n_ends = self._n_soon = 0
        else:
            self._n_loads = 0
            self._n_ends += 1
            self._n_soon += 1
        if self._n_loads >= N_LOADS_MAX or self._n_ends >= N_ENDS_MAX:
            return None
        self.n_total += 1
        least = WENT_ON_SECONDS if self._n_soon > 1 else 0.0
        n = max(self._n_loads, self._n_ends)
        return least if n <= 1 else max(least, float(min(DELAY_MAX_SECONDS, 2.0 ** (n - 2))))

    def went_on(self) -> None:
        """Note that requests of earlier engines have gone on in this one, so that the ends of those were no loss.
        Engines that end before they have continued a request still count, so that a series of those has an end."""
        self._n_ends = 0
        self._has_gone_on = True

    def forgive(self) -> None:
        """Reset the counts, because the last engines ended for a known reason outside of them."""
        self._n_loads = self._n_ends = self._n_soon = 0
        self._has_gone_on = False

    def reason(self) -> str:
        """Return why the engine is not started again."""
        if self._n_loads >= N_LOADS_MAX:
            return f"{self._n_loads} starts in a row failed"
        return f"it ended {self._n_ends} times, each time within {SOUND_SECONDS:.0f} s"
