"""Divides CPU threads among the engines of a fleet, and --cache-ram among its models.

Used on the event loop. llama.cpp's threads wait for each other after every operation, so engines that compute at the
same time must not have more threads than there are cores. An engine that computes alone has all of them. The prompts of
a model stay in memory while it has no engine, so that it goes on with them when it is loaded again. `cache-ram` in a
section of the preset limits the part of its model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from llamad.engine.loading.memory import host_free
from llamad.engine.loading.threads import compute_threads
from llamad.models.host import Host
from llamad.models.host_state import State

# The table of a cache memory takes less than this.
EMPTY_BYTES = 2 << 20
UNLIMITED = 1 << 62


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
        """Give every loaded engine its part. Call when an engine is loaded or has ended, and when it begins or ends to
        work."""
        loaded = [one for one in engines if one.host.state is State.READY]
        n_busy = sum(one.n_active > 0 for one in loaded)
        n_threads = max(1, self._n_cores // max(1, n_busy))
        n_bytes = self._cache_bytes - self._others_bytes(engines, len(loaded))
        if self._cache_bytes:
            n_bytes = max(n_bytes, len(loaded))  # others may hold everything; 0 would change nothing
        parts = _parts(n_bytes, [_limit(one.host) for one in loaded])
        hosts = {one.host for one in loaded}
        self._last = {host: given for host, given in self._last.items() if host in hosts}
        for one, part in zip(loaded, parts, strict=True):
            # An engine that is idle gets its threads with its next request. What a flag sets is not divided.
            is_given = one.host.settings.n_threads > 0
            share = 0 if is_given or one.n_active == 0 else n_threads
            last = self._last.get(one.host, (0, 0))
            new = share or last[0], part
            if new != last:
                self._last[one.host] = new
                one.host.share(share, share if one.host.settings.n_threads_batch <= 0 else 0, part)

    def _others_bytes(self, engines: Sequence[Sharing], n_loaded: int) -> int:
        """Return the bytes of prompts whose models do not serve. A model without an engine keeps at most what it would
        get if it were loaded, too; its longest unused prompts go first. While an engine ends or loads, all that its
        model has counts, because the prompts are the engine's."""
        if self._cache_bytes == 0:
            return 0
        held = {
            one.host: n
            for one in engines
            if one.host.state is not State.READY and (n := one.host.cache_memory.n_bytes) > EMPTY_BYTES
        }
        n_each = self._cache_bytes // (n_loaded + len(held) or 1)
        return sum(
            n if host.has_engine or n <= n_each else host.cache_memory.shrink(n_each)
            for host, n in held.items()
        )


def _limit(host: Host) -> int:
    """Return the bytes of prompts that a model's own settings allow."""
    limit = host.settings.cache_ram
    return limit << 20 if limit >= 0 else UNLIMITED


def _parts(n_bytes: int, limits: Sequence[int]) -> list[int]:
    """Divide bytes into equal parts, but none beyond its limit. What one may not have goes to the others."""
    parts = [0] * len(limits)
    n_left = len(limits)
    for i in sorted(range(len(limits)), key=limits.__getitem__):
        parts[i] = min(limits[i], n_bytes // n_left)
        n_bytes -= parts[i]
        n_left -= 1
    return parts
