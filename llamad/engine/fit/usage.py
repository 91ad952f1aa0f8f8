"""The memory that a model takes of each device and of the host, by kind. Plain data, in bytes."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Use(msgspec.Struct, frozen=True):
    """The memory that a model takes of one device, or of the host."""

    weights: int = 0
    cache: int = 0  # KV caches, windows and recurrent states of all slots
    compute: int = 0
    projector: int = 0
    adapters: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.resident

    @property
    def resident(self) -> int:
        """Return everything but the weights, which the system can read from their file again."""
        return self.cache + self.compute + self.projector + self.adapters

    def __add__(self, other: Use) -> Use:
        return Use(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


class Usage(msgspec.Struct, frozen=True):
    """The memory that a model takes of each device, in the order in which llama.cpp fills them, and of the host."""

    devices: dict[str, Use]
    host: Use

    @property
    def total(self) -> Use:
        return summed([self.host, *self.devices.values()])

    def __add__(self, other: Usage) -> Usage:
        names = dict.fromkeys([*self.devices, *other.devices])
        devices = {name: self.devices.get(name, Use()) + other.devices.get(name, Use()) for name in names}
        return Usage(devices, self.host + other.host)


def summed(uses: Iterable[Use]) -> Use:
    return sum(uses, Use())
