"""Decides to which machine a request goes. Each policy is a gateway that sees all requests, always knows how many each
machine has, and does not know what a machine has evicted."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable
from math import ceil
from typing import Protocol

import numpy as np

from bench.fleet.workload import Workload

VIRTUAL_NODES = 100  # positions of each machine on the ring


class Loads:
    """The number of requests of each machine. Machines with equally many are in random order."""

    def __init__(self, n: int, seed: int) -> None:
        self.counts = [0] * n
        self.total = 0
        self.alive = [True] * n
        self.n_alive = n
        self._random = random.Random(seed)
        self._keys = np.array([self._random.random() / 2 for _ in range(n)])  # infinite if it has failed
        self._tops = np.zeros(n, np.int64)  # the counts

    def change(self, machine: int, by: int) -> None:
        self.counts[machine] += by
        self.total += by
        if self.alive[machine]:
            self._tops[machine] = self.counts[machine]
            self._keys[machine] = self.counts[machine] + self._random.random() / 2

    def lose(self, machine: int) -> None:
        self.total -= self.counts[machine]
        self.counts[machine] = 0
        self.alive[machine] = False
        self.n_alive -= 1
        self._keys[machine] = np.inf
        self._tops[machine] = 0

    def least(self) -> int:
        return int(self._keys.argmin())

    def most(self) -> int:
        return int(self._tops.max())

    def any(self) -> int:
        while True:
            machine = self._random.randrange(len(self.counts))
            if self.alive[machine]:
                return machine


class Policy(Protocol):
    def start(self, conversation: int) -> int:
        """Return the machine of a conversation before the simulation."""

    def pick(self, conversation: int, n_known: int, n_prompt: int) -> int:
        """Return the machine for a request. `n_known` of its prompt's tokens were in the conversation's last prompt or
        answer."""


class LeastLoaded:
    def __init__(self, loads: Loads, workload: Workload) -> None:
        self.loads = loads

    def start(self, conversation: int) -> int:
        return self.loads.any()

    def pick(self, conversation: int, n_known: int, n_prompt: int) -> int:
        return self.loads.least()


class TwoChoices(LeastLoaded):
    """Chooses the less loaded of two random machines."""

    def pick(self, conversation: int, n_known: int, n_prompt: int) -> int:
        one, other = self.loads.any(), self.loads.any()
        return one if self.loads.counts[one] <= self.loads.counts[other] else other


class ConsistentHash:
    """Chooses by the conversation's position on a ring. A machine with more than `bound` times the mean passes a
    request on to the next one; with 0 there is no such limit."""

    bound = 0.0

    def __init__(self, loads: Loads, workload: Workload) -> None:
        self.loads = loads
        n = len(loads.counts)
        drawn = np.random.default_rng(n)
        places = drawn.random(n * VIRTUAL_NODES)
        order = np.argsort(places)
        self.places: list[float] = places[order].tolist()
        self.owners: list[int] = (order // VIRTUAL_NODES).tolist()
        self.hashes: list[float] = drawn.random(len(workload.first)).tolist()

    def start(self, conversation: int) -> int:
        return self.owners[bisect_left(self.places, self.hashes[conversation]) % len(self.owners)]

    def pick(self, conversation: int, n_known: int, n_prompt: int) -> int:
        loads, owners = self.loads, self.owners
        most = ceil(self.bound * (loads.total + 1) / loads.n_alive) if self.bound else loads.total + 1
        at = bisect_left(self.places, self.hashes[conversation])
        while True:
            machine = owners[at % len(owners)]
            if loads.alive[machine] and loads.counts[machine] < most:
                return machine
            at += 1


class BoundedHash(ConsistentHash):
    bound = 1.25


class CacheAware:
    """smg's policy: chooses the machine that got most of the prompt before, if that is more than `threshold` of it,
    else the least busy one. While any two machines are more than `spread` requests and a factor of 1.5 apart, it always
    chooses the least busy one."""

    threshold = 0.3
    spread = 8
    factor = 1.5

    def __init__(self, loads: Loads, workload: Workload) -> None:
        self.loads = loads
        self.workload = workload
        self.conversations: dict[int, int] = {}
        self.systems: dict[int, int] = {}

    def start(self, conversation: int) -> int:
        machine = self.conversations[conversation] = self.loads.any()
        self.systems[self.workload.system[conversation]] = machine
        return machine

    def is_unbalanced(self, machine: int) -> bool:
        most, least = self.loads.most(), self.loads.counts[self.loads.least()]
        return most - least > self.spread and most > self.factor * least

    def pick(self, conversation: int, n_known: int, n_prompt: int) -> int:
        system = self.workload.system[conversation]
        n_system = self.workload.system_tokens[system]
        machine = self.conversations.get(conversation, -1)
        n_match = n_known
        if machine < 0 or not self.loads.alive[machine]:
            machine, n_match = self.systems.get(system, -1), n_system
        is_match = machine >= 0 and self.loads.alive[machine] and n_match > self.threshold * n_prompt
        if not is_match or self.is_unbalanced(machine):
            machine = self.loads.least()
        self.conversations[conversation] = self.systems[system] = machine
        return machine


class CacheAware32(CacheAware):
    spread = 32


class CacheAwareEach(CacheAware):
    """Only avoids a machine that is itself that far from the least busy one."""

    def is_unbalanced(self, machine: int) -> bool:
        counts = self.loads.counts
        return counts[machine] - counts[self.loads.least()] > self.spread


POLICIES: dict[str, Callable[[Loads, Workload], Policy]] = {
    "least loaded": LeastLoaded,
    "best of two": TwoChoices,
    "consistent hash": ConsistentHash,
    "bounded hash": BoundedHash,
    "cache-aware, any 8 apart": CacheAware,
    "cache-aware, any 32 apart": CacheAware32,
    "cache-aware, itself 8 above": CacheAwareEach,
}
