"""The token sequences that each key has computed lately, and what of them a request computed again.

Used on the event loop. Pure but for its memory, which is bounded in bytes; it must not know how a request is answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Any

import msgspec

REASONS = ("changed", "evicted", "adapters", "other")
TOKENS_MIN = 64  # fewer tokens that are computed again are no miss
BYTES_MAX = 64 << 20
SEQUENCES_MAX = 16  # of a key
_ID_BYTES = 4
_NEAR = 16 * _ID_BYTES  # sequences whose common prefixes differ by less are equally close
_CLOSE_MAX = 4  # of which so many are compared in full
_BLOCK = 32 * _ID_BYTES  # what is looked for in another sequence
_BLOCKS_MAX = 24  # blocks that are looked for without success


class Sequence(msgspec.Struct, frozen=True):
    """Token ids as int32, and the adapters that computed them."""

    tokens: bytes
    adapters: Hashable


class Repeated(msgspec.Struct, frozen=True):
    """Tokens that were computed again: how many, the index of the first one, and the sequence that had them."""

    n: int
    at: int
    reason: str
    known: Sequence


class KnownPrompts:
    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._keys: dict[str, deque[Sequence]] = {}  # the newest one is the last
        self._n_bytes: dict[str, int] = {}
        # The cache miss of the last request in each slot, and its key; without those that had none.
        self.misses: dict[int, tuple[str, dict[str, Any]]] = {}

    def keep(self, key: str, sequence: Sequence) -> None:
        """Remember a sequence. It takes the place of the one that it continues."""
        own = self._keys.setdefault(key, deque())
        tokens = sequence.tokens
        for one in reversed(own):
            if 2 * common(one.tokens, tokens) >= len(one.tokens):
                own.remove(one)
                break
        own.append(sequence)
        if len(own) > SEQUENCES_MAX:
            own.popleft()
        self._n_bytes[key] = sum(len(one.tokens) for one in own)
        while sum(self._n_bytes.values()) > self._bytes_max:
            largest = max(self._n_bytes, key=lambda name: self._n_bytes[name])
            self._n_bytes[largest] -= len(self._keys[largest].popleft().tokens)
            if not self._keys[largest]:
                del self._keys[largest], self._n_bytes[largest]

    def repeated(
        self, key: str, sequence: Sequence, n_cached: int, *, uses_cache: bool = True
    ) -> Repeated | None:
        """Return what a prompt of which n_cached tokens were cached has computed again, or None."""
        tokens, start = sequence.tokens, n_cached * _ID_BYTES
        if len(tokens) - start < TOKENS_MIN * _ID_BYTES or not self._keys.get(key):
            return None
        shared = [(common(one.tokens, tokens), one) for one in reversed(self._keys[key])]
        longest, nearest = max(shared, key=lambda one: one[0])
        n_same = min(longest, len(tokens) - _ID_BYTES)  # the last token of a prompt is always computed
        if n_same - start >= TOKENS_MIN * _ID_BYTES:
            reason = "evicted" if uses_cache else "other"
            if nearest.adapters != sequence.adapters:
                reason = "adapters"
            return Repeated((n_same - start) // _ID_BYTES, n_cached, reason, nearest)
        close = [(n, one) for n, one in shared if n >= longest - _NEAR][:_CLOSE_MAX]
        n_again, at, known = max(
            ((_again(one.tokens, tokens, max(n, start)), n, one) for n, one in close), key=lambda one: one[0]
        )
        if n_again < TOKENS_MIN:
            return None
        return Repeated(n_again, at // _ID_BYTES, "changed", known)


def common(one: bytes, other: bytes) -> int:
    """Return the length of the common prefix in bytes, as a multiple of a token's size."""
    n, step, most = 0, 256, min(len(one), len(other))
    while n < most and one[n : n + step] == other[n : n + step]:
        n = min(most, n + step)
        step *= 2
    while step >= _ID_BYTES and n < most:
        if one[n : n + step] == other[n : n + step]:
            n = min(most, n + step)
        step //= 2
    return n - n % _ID_BYTES


def _again(known: bytes, tokens: bytes, start: int) -> int:
    """Return how many tokens from `start` on also stand, in runs, in the known sequence; an estimate from below."""
    n_again, n_missed = 0, 0
    while start + _BLOCK <= len(tokens) and n_missed < _BLOCKS_MAX:
        at = known.find(tokens[start : start + _BLOCK])
        while at >= 0 and at % _ID_BYTES:
            at = known.find(tokens[start : start + _BLOCK], at + 1)
        if at < 0:
            n_missed += 1
            start += _BLOCK
            continue
        run = common(known[at:], tokens[start:])
        n_again += run // _ID_BYTES
        start += run
    return n_again
