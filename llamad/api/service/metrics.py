"""Owns the counters and histograms that the event loop keeps for GET /metrics.

Written on the event loop. Labels come from route names and status codes only, so their number is bounded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from llamad.http.exchange import CLIENT_GONE, Exchange

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Histogram:
    """Cumulative buckets as Prometheus has them."""

    __slots__ = ("counts", "help", "name", "total")

    def __init__(self, name: str, help: str) -> None:
        self.name = name
        self.help = help
        self.counts = [0] * (len(_SECONDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float, n: int = 1) -> None:
        self.counts[bisect_left(_SECONDS, seconds)] += n
        self.total += seconds * n

    def lines(self) -> Iterable[str]:
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} histogram"
        n = 0
        for bound, count in zip(_SECONDS, self.counts, strict=False):
            n += count
            yield f'{self.name}_bucket{{le="{bound:g}"}} {n}'
        n += self.counts[-1]
        yield f'{self.name}_bucket{{le="+Inf"}} {n}'
        yield f"{self.name}_sum {self.total:.9g}"
        yield f"{self.name}_count {n}"


class Metrics:
    """What the event loop counts; the engine's own numbers are read when asked for."""

    def __init__(self) -> None:
        self.first_token_seconds = Histogram(
            "llamad:time_to_first_token_seconds", "From the request's head to its first text."
        )
        self.token_gap_seconds = Histogram(
            "llamad:token_gap_seconds", "Between two tokens of one generation."
        )
        self.queue_seconds = Histogram("llamad:queue_seconds", "Wait for a slot.")
        self.request_seconds = Histogram(
            "llamad:request_seconds", "From a request's head to the end of its answer."
        )
        self.requests: dict[tuple[str, int], int] = {}
        self.n_client_gone = 0

    def on_done(self, exchange: Exchange, seconds: float) -> None:
        """An answer is complete, or its client has left."""
        route, status = exchange.request.route, exchange.status
        key = (route.name if route is not None else "other", status)
        requests = self.requests
        requests[key] = requests[key] + 1 if key in requests else 1
        self.request_seconds.observe(seconds)
        if status == CLIENT_GONE:
            self.n_client_gone += 1
