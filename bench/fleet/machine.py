"""A simulated machine: slots, one prefill at a time beside the streams that decode, and cached conversations.

Times are seconds of the simulation. Between two of its events, all of its speeds are constant."""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from dataclasses import dataclass, field

import numpy as np

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Speeds:
    """The speeds of an 8b-shaped model in Q8_0 on an H200. Decoding was measured; prefill is derived from that of the
    1b-shaped model (RESULTS.md)."""

    n_slots: int = 32
    prefill: float = 10_000.0  # tokens/s
    decode: tuple[tuple[int, float], ...] = (
        (1, 246.0),
        (8, 1059.0),
        (32, 3155.0),
    )  # streams: tokens/s of all
    prefill_share: float = 0.75  # the share of the machine's time for prefill while streams decode
    cache: int = 524_288  # tokens that slots and --cache-ram keep

    def of_stream(self) -> list[float]:
        """Return the tokens/s of each stream, by the number of streams; the time of a step is interpolated."""
        known = np.array(self.decode)
        steps = known[:, 0] / known[:, 1]
        n = np.arange(1, self.n_slots + 1)
        return [0.0, *(1 / np.interp(n, known[:, 0], steps)).tolist()]


@dataclass(slots=True)
class Request:
    t_sent: float
    conversation: int
    n_prompt: int
    n_answer: int
    n_new: int = 0  # prompt tokens to compute, known when it has a slot
    is_begun: bool = False  # its first token was sent


@dataclass(slots=True)
class Machine:
    id: int
    speeds: Speeds
    stream: list[float]
    t: float = 0.0
    version: int = 0  # the version of its next event
    waiting: deque[Request] = field(default_factory=deque)
    prefilling: deque[Request] = field(default_factory=deque)
    left: float = 0.0  # tokens that the first of these still needs
    n_decoding: int = 0
    decoded: float = 0.0  # tokens that a stream would have decoded since the start
    ends: list[tuple[float, int, Request]] = field(default_factory=list)  # by `decoded`
    kept: OrderedDict[int, int] = field(
        default_factory=OrderedDict
    )  # tokens by conversation, oldest use first
    n_kept: int = 0
    systems: dict[int, int] = field(default_factory=dict)  # conversations kept, by system prompt
    n_ends: int = 0
    prefill_rate: float = 0.0  # tokens/s
    decode_rate: float = 0.0  # tokens/s of each stream

    @property
    def has_slot(self) -> bool:
        return len(self.prefilling) + self.n_decoding < self.speeds.n_slots

    def advance(self, t: float) -> None:
        dt = t - self.t
        self.left -= self.prefill_rate * dt
        self.decoded += self.decode_rate * dt
        self.t = t

    def next_event(self) -> float:
        """Return the time of the next event, or NEVER, and set the speeds until then. Call this after every change."""
        share = self.speeds.prefill_share if self.n_decoding else 1.0
        t = NEVER
        if self.prefilling:
            self.prefill_rate = self.speeds.prefill * share
            self.decode_rate = self.stream[self.n_decoding] * (1 - share)
            t = self.t + self.left / self.prefill_rate
        else:
            self.prefill_rate = 0.0
            self.decode_rate = self.stream[self.n_decoding]
        if self.n_decoding:
            t = min(t, self.t + (self.ends[0][0] - self.decoded) / self.decode_rate)
        return max(t, self.t)

    def begin_prefill(self, request: Request) -> None:
        self.prefilling.append(request)
        if len(self.prefilling) == 1:
            self.left = request.n_new

    def end_prefill(self) -> Request | None:
        """Return the request whose prompt is done, which decodes from now on, or None."""
        if not self.prefilling or self.left > 1e-6:
            return None
        request = self.prefilling.popleft()
        if self.prefilling:
            self.left = self.prefilling[0].n_new
        self.n_decoding += 1
        self.n_ends += 1
        heapq.heappush(self.ends, (self.decoded + request.n_answer, self.n_ends, request))
        return request

    def end_decode(self) -> Request | None:
        if not self.ends or self.ends[0][0] > self.decoded + 1e-6:
            return None
        self.n_decoding -= 1
        return heapq.heappop(self.ends)[2]

    def cached(self, conversation: int, system: int, n_system: int) -> int:
        """Return how many tokens at the prompt's beginning are cached."""
        n_tokens = self.kept.get(conversation)
        if n_tokens is not None:
            return n_tokens
        return n_system if system in self.systems else 0

    def keep(self, conversation: int, n_tokens: int, system_of: list[int]) -> None:
        """Cache a conversation as the most recently used one; drop others if there is no room."""
        before = self.kept.pop(conversation, None)
        system = system_of[conversation]
        if before is None:
            self.systems[system] = self.systems.get(system, 0) + 1
        self.kept[conversation] = n_tokens
        self.n_kept += n_tokens - (before or 0)
        while self.n_kept > self.speeds.cache:
            gone, n_gone = self.kept.popitem(last=False)
            self.n_kept -= n_gone
            system = system_of[gone]
            self.systems[system] -= 1
            if not self.systems[system]:
                del self.systems[system]

    def lose(self) -> list[Request]:
        """Fail: drop all state, and return the unfinished requests."""
        left = [*self.waiting, *self.prefilling, *(one for _, _, one in sorted(self.ends))]
        self.waiting.clear()
        self.prefilling.clear()
        self.ends.clear()
        self.kept.clear()
        self.systems.clear()
        self.n_decoding = self.n_kept = 0
        self.version += 1
        return left
