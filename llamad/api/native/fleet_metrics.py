"""The metrics of the engines of a router: loads, unloads, waits, memory. Pure data over the scheduler.

prometheus.py writes them after the others; a server with one model has none of them.
"""

from __future__ import annotations

from collections import Counter

from llamad.api.native.metrics_table import Metric, counter, gauge
from llamad.api.native.snapshot import Labels
from llamad.models.fleet.model import State
from llamad.models.fleet.scheduler import Scheduler


def _loads(scheduler: Scheduler) -> dict[Labels, float]:
    return {(("model", name),): n for name, n in sorted(scheduler.counters.loads.items())}


def _failures(scheduler: Scheduler) -> dict[Labels, float]:
    return {(("model", name),): n for name, n in sorted(scheduler.counters.failures.items())}


def _unloads(scheduler: Scheduler) -> dict[Labels, float]:
    stops = sorted(scheduler.counters.stops.items())
    return {(("model", name), ("reason", reason)): n for (name, reason), n in stops}


def _refusals(scheduler: Scheduler) -> dict[Labels, float]:
    refusals = sorted(scheduler.counters.refusals.items())
    return {(("model", name), ("status", str(status))): n for (name, status), n in refusals}


def _waiting(scheduler: Scheduler) -> dict[Labels, float]:
    counts: Counter[Labels] = Counter()
    for name in scheduler.names():
        counts[(("model", scheduler.title(name)),)] += scheduler.waiting(name)
    return dict(counts)


def _states(scheduler: Scheduler) -> dict[Labels, float]:
    """Return the states of engines. While an engine is replaced, its model is in two."""
    counts: Counter[Labels] = Counter()
    for name in scheduler.names():
        for state in State:
            labels = (("model", scheduler.title(name)), ("state", str(state)))
            counts[labels] += scheduler.state(name) is state
    return dict(counts)


def _bytes(scheduler: Scheduler) -> dict[Labels, float]:
    counts: Counter[Labels] = Counter()
    for name, held in sorted(scheduler.ledger.models().items()):
        for device, n in sorted(held.items()):
            counts[(("model", scheduler.title(name)), ("device", device))] += n
    return dict(counts)


def _bytes_max(scheduler: Scheduler) -> dict[Labels, float]:
    return {(("device", device),): scheduler.ledger.limit(device) for device in scheduler.ledger.devices()}


FLEET: tuple[Metric[Scheduler], ...] = (
    counter("llamad:model_loads_total", "Loads of a model.", _loads),
    counter("llamad:model_load_failures_total", "Loads of a model that failed.", _failures),
    counter("llamad:model_unloads_total", "Unloads of a model, by reason.", _unloads),
    counter("llamad:model_refusals_total", "Requests refused while they waited for their model.", _refusals),
    gauge("llamad:model_requests_waiting", "Requests that wait until their model is loaded.", _waiting),
    gauge("llamad:model_state", "1 for the state that a model is in.", _states),
    gauge("llamad:model_bytes", "Memory that a model holds or has reserved, by device.", _bytes),
    gauge("llamad:models_bytes_max", "Memory that all models together may take, by device.", _bytes_max),
)
