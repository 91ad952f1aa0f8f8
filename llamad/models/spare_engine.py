"""Keeps one engine process started without a model, so that the next load does not wait for the start of Python.

Runs on the event loop. A spare process takes about 15 MB. It exists only while some model is not loaded, and is started
some seconds after the last load, because its start takes CPU time that a load or the first requests need.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from llamad.models.engine_process import EngineProcess
from llamad.models.host import Host
from llamad.models.host_state import State

log = logging.getLogger("llamad.engine")

# The time without a change of any model's state after which a spare process is started.
QUIET_SECONDS = 5.0

_RESTING = (State.UNLOADED, State.SLEEPING)


class SpareEngine:
    """Hosts that add() has got take their processes from here. Until begin(), none is started ahead."""

    def __init__(self, quiet_seconds: float = QUIET_SECONDS) -> None:
        self._quiet_seconds = quiet_seconds
        self._hosts: list[Host] = []
        self._process: EngineProcess | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_on = False
        # Whether there are models without a host yet.
        self.has_more: Callable[[], bool] = lambda: False

    @property
    def pid(self) -> int | None:
        """The number of the spare process, or None if there is none."""
        return self._process.pid if self._process is not None else None

    def add(self, host: Host) -> None:
        """Give this host its processes from now on."""
        self._hosts.append(host)
        host.take_process = self.take
        host.on_state.append(self._on_state)

    def remove(self, host: Host) -> None:
        self._hosts.remove(host)
        host.on_state.remove(self._on_state)

    def begin(self) -> None:
        """Keep a spare process from now on, whenever a model is not loaded."""
        self._is_on = True
        self._wait()

    def give(self, process: EngineProcess) -> None:
        """Keep a process that was started already."""
        self._process = process

    def take(self) -> EngineProcess:
        """Return the spare process, or a new one. Raises OSError."""
        process, self._process = self._process, None
        if process is not None and process.is_alive:
            return process
        if process is not None:
            process.abandon()
        return EngineProcess()

    def close(self) -> None:
        """End the spare process, and start none any more."""
        self._is_on = False
        if self._timer is not None:
            self._timer.cancel()
        if self._process is not None:
            self._process.abandon()
            self._process = None

    def _on_state(self, host: Host) -> None:
        if self._is_on:
            self._wait()

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._quiet_seconds, self._start)

    def _start(self) -> None:
        self._timer = None
        states = [host.state for host in self._hosts]
        is_wanted = self.has_more() or any(state in _RESTING for state in states)
        if self._process is not None or not is_wanted or State.LOADING in states:
            return  # the end of a load calls _on_state()
        try:
            self._process = EngineProcess()
        except OSError as error:  # the next load tries again, and reports it
            log.warning("no spare engine process: %s", error.strerror or error)
