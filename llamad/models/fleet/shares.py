"""Divides CPU threads and --cache-ram among the engines of a fleet.

Used on the event loop. llama.cpp's threads wait for each other after every operation, so engines that compute at the
same time must not have more threads than there are cores. An engine that computes alone has all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from llamad.engine.loading.memory import host_free
from llamad.engine.loading.threads import compute_threads
from llamad.models.host import Host
from llamad.models.host_state import State


class Sharing(Protocol):
    """One engine: whether it works on requests, and its host."""

    host: Host
    n_active: int


class Shares:
    """`cache_ram` is the flag: MiB for all engines; 0: off, negative: no limit."""

    def __init__(self, cache_ram: int) -> None:
        self._cache_bytes = min(cache_ram << 20, host_free() // 2) if cache_ram > 0 else 0
        self._n_cores = compute_threads(0)
        self._last: dict[Host, tuple[int, int]] = {}  # the threads and bytes that each engine has got

    def divide(self, engines: Sequence[Sharing]) -> None:
        """Give every loaded engine its part. Call when an engine is loaded or ends, and when it begins or ends to
        work."""
        loaded = [one for one in engines if one.host.state is State.READY]
        n_busy = sum(one.n_active > 0 for one in loaded)
        n_threads = max(1, self._n_cores // max(1, n_busy))
        n_bytes = self._cache_bytes // max(1, len(loaded))
        hosts = {one.host for one in loaded}
        self._last = {host: given for host, given in self._last.items() if host in hosts}
        for one in loaded:
            # An engine that is idle gets its threads with its next request. What a flag sets is not divided.
            is_given = one.host.settings.n_threads > 0
            share = 0 if is_given or one.n_active == 0 else n_threads
            last = self._last.get(one.host, (0, 0))
            new = share or last[0], n_bytes
            if new != last:
                self._last[one.host] = new
                one.host.share(share, share if one.host.settings.n_threads_batch <= 0 else 0, n_bytes)
