"""Decides which resumable streams end because nobody reads them.

Called on the event loop from time to time. Unread streams go on for a while if no request waits for a slot. If requests
wait, unread streams keep half of the slots at first, and later none.
"""

from __future__ import annotations

import math
from collections import defaultdict

from llamad.api.service.kept_streams import KeptStream, KeptStreams
from llamad.client.engine_client import EngineClient

UNREAD_SECONDS = 300.0  # a stream without a reader ends after this time, even if no request waits
AWAY_SECONDS = 3.0  # a client that has disconnected is likely to come back at once only within this time
WAITED_SECONDS = 1.0  # a request has waited this long for a slot before unread streams end to make room
# After this time all unread streams end, because they may fill a cache that all slots share.
WAITED_LONG_SECONDS = 10.0


def give_way(store: KeptStreams, now: float, stall_seconds: float) -> None:
    """End streams that nobody reads, if other requests need their slots or after UNREAD_SECONDS. A client that is
    connected but does not read has `stall_seconds`; 0: no limit."""
    for stream in list(store.running()):
        if _unread_seconds(stream, now) >= UNREAD_SECONDS:
            _end(stream, f"Nobody has read this stream for {UNREAD_SECONDS:.0f} s")
    unread: dict[EngineClient, list[KeptStream]] = defaultdict(list)
    for stream in store.running():
        if stream.generation is not None and _is_away(stream, now, stall_seconds):
            unread[stream.generation.engine].append(stream)
    for engine, streams in unread.items():
        _make_room(streams, engine, now)


def _make_room(unread: list[KeptStream], engine: EngineClient, now: float) -> None:
    """End unread streams if other requests have waited too long for a slot of this engine."""
    if _is_waiting(unread, engine, now - WAITED_LONG_SECONDS):
        n_left = 0
    elif _is_waiting(unread, engine, now - WAITED_SECONDS):
        n_left = engine.n_slots // 2
    else:
        return
    for stream in _beyond(unread, n_left):
        _end(stream, "Nobody read this stream while requests waited for a slot")


def _unread_seconds(stream: KeptStream, now: float) -> float:
    return 0.0 if stream.t_unread is None else now - stream.t_unread


def _is_away(stream: KeptStream, now: float, stall_seconds: float) -> bool:
    patience = (stall_seconds or math.inf) if stream.readers else AWAY_SECONDS
    return _unread_seconds(stream, now) >= patience


def _is_waiting(unread: list[KeptStream], engine: EngineClient, t_before: float) -> bool:
    """Whether a task that belongs to none of these streams has waited for a slot since `t_before`."""
    n_unread = sum(one.generation.n_queued(t_before) for one in unread if one.generation is not None)
    return engine.n_queued(t_before) > n_unread


def _beyond(unread: list[KeptStream], n_left: int) -> list[KeptStream]:
    """Return the streams to end so that `n_left` go on. Each time the key with the most streams loses the one that has
    been unread for the longest time."""
    keys: dict[str, list[KeptStream]] = defaultdict(list)
    for stream in sorted(unread, key=lambda one: one.t_unread or 0.0, reverse=True):
        keys[stream.key].append(stream)
    return [max(keys.values(), key=len).pop() for _ in range(len(unread) - n_left)]


def _end(stream: KeptStream, reason: str) -> None:
    if stream.generation is not None:
        stream.generation.give_way(reason)
