"""The counters and histograms that the event loop keeps for GET /metrics; each is declared here only.

Written on the event loop. Labels are route names, status codes and models only, so their number is bounded.
"""

from __future__ import annotations

from llamad.base.histogram import Histogram
from llamad.http.exchange import CLIENT_GONE, Exchange

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Reloads:
    """The results of reloads (SIGHUP). `items` names the things that can be reloaded; `failed` says why the last reload
    kept the old one."""

    def __init__(self) -> None:
        self.n_total = 0
        self.n_failures = 0
        self.items: list[str] = []
        self.failed: dict[str, str] = {}
        self.certificate_expiry: float | None = None  # in seconds since 1970

    def add(self, failed: dict[str, str]) -> None:
        self.n_total += 1
        self.n_failures += bool(failed)
        self.failed = failed

    @property
    def status(self) -> str:
        """Return a line for the operator that says what failed; it is empty if nothing did."""
        if not self.failed:
            return ""
        return "reload failed: " + "; ".join(f"{item}: {reason}" for item, reason in self.failed.items())


def _histogram(name: str, help: str) -> Histogram:
    return Histogram(name, help, _SECONDS)


class Metrics:
    """What the event loop counts for the requests of all models."""

    def __init__(self) -> None:
        self.request_seconds = _histogram(
            "llamad:request_seconds", "From a request's head to the end of its response."
        )
        self.requests: dict[tuple[str, int], int] = {}
        self.n_client_gone = 0
        self.reloads = Reloads()

    @property
    def histograms(self) -> tuple[Histogram, ...]:
        """Return all histograms, in the order of GET /metrics."""
        return (self.request_seconds,)

    def on_done(self, exchange: Exchange, seconds: float) -> None:
        """Count a request whose response is complete, or whose client has disconnected."""
        route, status = exchange.request.route, exchange.status
        key = (route.name if route is not None else "other", status)
        requests = self.requests
        requests[key] = requests[key] + 1 if key in requests else 1
        self.request_seconds.observe(seconds)
        if status == CLIENT_GONE:
            self.n_client_gone += 1


class ModelMetrics:
    """What the event loop counts for the requests of one model. The engine's counters are read when /metrics is
    requested."""

    def __init__(self) -> None:
        self.first_token_seconds = _histogram(
            "llamad:time_to_first_token_seconds", "From a request's head to its first text."
        )
        self.token_gap_seconds = _histogram("llamad:token_gap_seconds", "Between two tokens of a stream.")
        self.queue_seconds = _histogram("llamad:queue_seconds", "Wait for a slot.")
        # The requests that computed known tokens again, and these tokens, by the reason.
        self.cache_misses: dict[str, int] = {}
        self.cache_missed_tokens: dict[str, int] = {}

    def count_miss(self, reason: str, n_tokens: int) -> None:
        self.cache_misses[reason] = self.cache_misses.get(reason, 0) + 1
        self.cache_missed_tokens[reason] = self.cache_missed_tokens.get(reason, 0) + n_tokens

    @property
    def histograms(self) -> tuple[Histogram, ...]:
        """Return all histograms, in the order of GET /metrics."""
        return (self.first_token_seconds, self.token_gap_seconds, self.queue_seconds)
