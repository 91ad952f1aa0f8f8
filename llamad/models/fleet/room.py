"""The balance of one pass of the allocator: what is free, what will be, and what older waiters are owed.

Pure. The number of models is treated as one more device, SLOTS, of which each model with a process holds one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from llamad.models.fleet.ledger import UNLIMITED
from llamad.models.fleet.model import Model, State
from llamad.models.fleet.transitions import Table

SLOTS = "slots of --models-max"
ONE_SLOT: Mapping[str, int] = {SLOTS: 1}


class Room:
    def __init__(self, table: Table) -> None:
        self._ledger = table.ledger
        models_max = table.limits.models_max or UNLIMITED
        n_counted = 0
        self._stopping: defaultdict[str, int] = defaultdict(int)  # certain to be free soon
        self._leaving: defaultdict[str, int] = defaultdict(int)  # free when running requests have ended
        self._draining: defaultdict[str, int] = defaultdict(int)  # likewise, but the drain can be cancelled
        for model in table.models.values():
            n_counted += model.has_slot
            if model.state is State.STOPPING:
                self._add(self._stopping, self._ledger.of(model.name))
            elif model.state is State.DRAINING:
                self._add(self._draining if model.is_victim else self._leaving, self.held(model))
        self._free: dict[str, int] = {SLOTS: models_max - n_counted}
        self._claimed: defaultdict[str, int] = defaultdict(int)
        self._claimed_late: defaultdict[str, int] = defaultdict(int)

    def held(self, model: Model) -> dict[str, int]:
        """Return what becomes free when a model with a process has stopped."""
        return {SLOTS: 1, **self._ledger.of(model.name)}

    def free(self, device: str) -> int:
        """Return what is free now. It is negative if more is in use than the limit allows."""
        n = self._free.get(device)
        if n is None:
            n = self._free[device] = self._ledger.limit(device) - self._ledger.used(device)
        return n

    def can_take(self, need: Mapping[str, int]) -> bool:
        """Return whether the need is free now, and taking it delays nobody who has a claim: on these devices, what is
        free or certain to be free soon is enough for all claims and for this."""
        return all(
            n <= self.free(device) and n <= self.free(device) + self._stopping[device] - self._claimed[device]
            for device, n in need.items()
        )

    def take(self, need: Mapping[str, int]) -> None:
        for device, n in need.items():
            self._free[device] = self.free(device) - n

    def claim(self, need: Mapping[str, int], is_late: bool) -> None:
        """Note what a waiter is owed before all that come after it in the pass."""
        self._add(self._claimed, need)
        if is_late:
            self._add(self._claimed_late, need)

    def missing(
        self, need: Mapping[str, int], *, with_leaving: bool, with_draining: bool
    ) -> dict[str, int] | None:
        """Return what is missing for the need on each device; or None if it is missing for an older claim already, so
        that nothing can be done for this need yet."""
        missing = {}
        for device, n in need.items():
            rest = self.free(device) + self._stopping[device] - self._claimed[device]
            rest += self._leaving[device] if with_leaving else 0
            rest += self._draining[device] if with_draining else 0
            if rest < 0 and self._claimed[device]:
                return None
            if rest < n:
                missing[device] = n - rest
        return missing

    def is_spare(self, victim: Model) -> bool:
        """Return whether the claims of late waiters are covered without this draining victim."""
        for device, n in self.held(victim).items():
            claimed = self._claimed_late[device]
            soon = self.free(device) + self._stopping[device] + self._leaving[device] + self._draining[device]
            if claimed and soon - n < claimed:
                return False
        return True

    def can_keep(self, victim: Model) -> bool:
        """Return whether everything that was taken or claimed is there without a model that is to stop."""
        return all(
            n <= self.free(device) + self._stopping[device] - self._claimed[device]
            for device, n in self.held(victim).items()
        )

    # What the allocator does with models during the pass.

    def drains(self, victim: Model) -> None:
        self._add(self._draining, self.held(victim))

    def drains_no_more(self, victim: Model) -> None:
        self._add(self._draining, self.held(victim), -1)

    def stops(self, victim: Model) -> None:
        """Note that a model with a process is stopped. Its slot is free at once, its memory is not."""
        self._add(self._stopping, self._ledger.of(victim.name))
        self._free[SLOTS] += victim.has_slot

    def stops_not(self, victim: Model) -> None:
        """Take stops() back."""
        self._add(self._stopping, self._ledger.of(victim.name), -1)
        self._free[SLOTS] -= victim.has_slot

    @staticmethod
    def _add(total: defaultdict[str, int], need: Mapping[str, int], sign: int = 1) -> None:
        for device, n in need.items():
            total[device] += sign * n
