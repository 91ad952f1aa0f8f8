"""Sends systemd regular messages: the status, requests for more time while loading and draining, and the watchdog's
keep-alive message.

It is a task on the event loop, so that a loop that hangs stops sending. It reads what /health and /metrics read, and
never asks an engine.

This is the second of two safeguards. Its host kills an engine that hangs after --engine-stall-seconds, which costs only
the requests of that engine. Meanwhile the keep-alive messages go on, because a restart of the whole daemon would cost
more. They stop only if the engine still exists some seconds later, such as one that waits in the kernel for a dead
device. Loading has no time limit, because its time depends on the disk, but an engine that neither computes nor reads
for two minutes is killed, too.
"""

from __future__ import annotations

import asyncio
import logging
import time

from llamad.api.native.load_report import load_of
from llamad.api.service.model_table import ModelTable
from llamad.api.service.served_model import ServedModel
from llamad.http.server import HttpServer
from llamad.models.host import Host
from llamad.models.host_state import State
from llamad.systemd import notify

log = logging.getLogger("llamad")

BEAT_SECONDS = 3.0


class ModelStatus:
    """Tells in words what one model is doing."""

    def __init__(self, served: ServedModel) -> None:
        self._served = served
        self._n_tokens, self._t_tokens = 0, time.monotonic()
        self._rate = 0

    def text(self) -> str:
        host = self._served.host
        if host.state is State.READY:
            return self._serving()
        if host.state in (State.SLEEPING, State.UNLOADED):
            return str(host.state.value)
        if host.state is State.FAILED:
            return f"failed: {host.error}"
        progress = host.progress.text()
        return f"{progress}, because {host.error}" if host.error else progress

    def _serving(self) -> str:
        load = load_of(self._served)
        n_busy = load.max_running_requests - load.num_free_slots
        # The engine fills its slots before this process hears of it.
        n_waiting = min(load.num_waiting_reqs, max(0, load.num_total_reqs - n_busy))
        return (
            f"serving: {n_busy} of {load.max_running_requests} slots, {n_waiting} waiting,"
            f" {self._tokens_per_second()} tokens/s"
        )

    def _tokens_per_second(self) -> int:
        """Return the rate of generated tokens and of tokens of embedded texts, since the last status."""
        engine, embedder = self._served.host.engine, self._served.host.embedder
        n_tokens = engine.stats()["n_predicted"] if engine is not None else 0
        n_tokens += embedder.counts.n_tokens if embedder is not None else 0
        now = time.monotonic()
        if now - self._t_tokens >= BEAT_SECONDS / 2:  # a shorter time would give a useless rate
            self._rate = round(max(0, n_tokens - self._n_tokens) / (now - self._t_tokens))
            self._n_tokens, self._t_tokens = n_tokens, now
        return self._rate


class Heartbeat:
    def __init__(self, models: ModelTable, http: HttpServer) -> None:
        self._models = models
        self._service = models.service
        self._statuses: dict[ServedModel, ModelStatus] = {}
        self._http = http
        self._watchdog = notify.watchdog_seconds()
        self._t_status = 0.0
        self._kind: tuple[list[State], bool] | None = None  # the states that the last status described

    async def run(self) -> None:
        """Send messages until cancelled."""
        period = min(BEAT_SECONDS, (self._watchdog or BEAT_SECONDS) / 2)
        while notify.is_supervised():
            self.beat()
            await asyncio.sleep(period)

    def beat(self) -> None:
        lines: list[str] = []
        hosts = [one.host for one in self._models]
        if self._watchdog is not None and not any(host.is_stuck for host in hosts):
            lines.append("WATCHDOG=1")
        states = [host.state for host in hosts]
        is_starting = any(host.state is State.LOADING and not host.has_served for host in hosts)
        if self._service.is_leaving or is_starting:
            lines.append(notify.extension())
        now, kind = time.monotonic(), (states, self._service.is_leaving)
        status = None
        if now - self._t_status >= BEAT_SECONDS or kind != self._kind:
            self._t_status, self._kind = now, kind
            try:
                status = self.status()
            except Exception:  # a bug in the status text must not stop the keep-alive messages
                log.exception("the status for systemd could not be made")
        notify.tell(*lines, status=status)

    def status(self) -> str:
        """Return one line that says what the daemon is doing."""
        models = list(self._models)
        is_draining = bool(models) and all(one.host.state is State.DRAINING for one in models)
        if self._service.is_leaving or is_draining:
            return f"draining: {self._http.n_active} requests running"
        self._statuses = {one: self._statuses.get(one) or ModelStatus(one) for one in models}
        if not self._models.is_router:
            return "; ".join(one.text() for one in self._statuses.values())
        running: dict[Host, list[ServedModel]] = {}  # variants of a model share one engine
        for one in models:
            if one.host.state is not State.UNLOADED:
                running.setdefault(one.host, []).append(one)
        texts = [
            f"{', '.join(one.name for one in same)}: {self._statuses[same[0]].text()}"
            for same in running.values()
        ]
        return "; ".join(texts) or "no model is loaded"
