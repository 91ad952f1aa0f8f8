"""The memory that engines hold or were promised, in bytes by device.

Pure. A model's bytes are reserved before it loads, settled to what is measured once it serves, and released when its
process has ended. The ledger does not decide who gets memory.
"""

from __future__ import annotations

from collections.abc import Mapping

UNLIMITED = 1 << 62


class Ledger:
    """`memory_max` limits each device for all models together; 0: no limit."""

    def __init__(self, memory_max: int = 0) -> None:
        self._memory_max = memory_max or UNLIMITED
        self._capacity: dict[str, int] = {}
        self._bytes: dict[str, dict[str, int]] = {}  # by model, then by device
        self._used: dict[str, int] = {}

    def observe(self, capacity: Mapping[str, int]) -> None:
        """Note what all engines together could have on each device. A device that was never observed has no limit of
        its own."""
        self._capacity.update(capacity)

    def limit(self, device: str) -> int:
        return min(self._memory_max, self._capacity.get(device, UNLIMITED))

    def used(self, device: str) -> int:
        return self._used.get(device, 0)

    def devices(self) -> list[str]:
        """Return every device that was observed or used."""
        return sorted(self._capacity.keys() | self._used.keys())

    def of(self, model: str) -> Mapping[str, int]:
        """Return the bytes that a model holds or was promised, by device."""
        return self._bytes.get(model, {})

    def models(self) -> Mapping[str, Mapping[str, int]]:
        """Return the bytes of every model that holds some, by device."""
        return self._bytes

    def reserve(self, model: str, need: Mapping[str, int]) -> None:
        """Promise memory to a model that holds none. The caller has made sure that it is there."""
        self._set(model, need)

    def settle(self, model: str, measured: Mapping[str, int]) -> None:
        """Replace what was reserved by what is measured. It may be more than the limit: the memory is in use."""
        self._set(model, measured)

    def release(self, model: str) -> None:
        self._set(model, {})

    def _set(self, model: str, need: Mapping[str, int]) -> None:
        for device, n in self._bytes.pop(model, {}).items():
            self._used[device] -= n
        n_bytes = {device: n for device, n in need.items() if n > 0}
        for device, n in n_bytes.items():
            self._used[device] = self.used(device) + n
        if n_bytes:
            self._bytes[model] = n_bytes
