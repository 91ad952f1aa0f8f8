"""The memory that a model takes of each device and of the host, by kind. Plain data, in bytes."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

KINDS = ("weights", "cache", "compute", "projector", "adapters", "draft")  # they add up to the total


class Use(msgspec.Struct, frozen=True):
    """The memory that a model takes of one device, or of the host."""

    weights: int = 0
    cache: int = 0  # KV caches, windows and recurrent states of all slots
    compute: int = 0
    projector: int = 0
    adapters: int = 0
    draft: int = 0  # the draft model: its weights, cache and compute buffers
    repacked: int = 0  # the part of the weights that is in a layout of the CPU's own, and not in the file

    @property
    def total(self) -> int:
        return sum(getattr(self, kind) for kind in KINDS)

    @property
    def resident(self) -> int:
        """Return everything but the weights that the system can read from their file again, if that is mapped."""
        return self.total - self.weights + self.repacked

    def __add__(self, other: Use) -> Use:
        return Use(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


class Usage(msgspec.Struct, frozen=True):
    """The memory that a model takes of each device, in the order in which llama.cpp fills them, and of the host."""

    devices: dict[str, Use]
    host: Use

    def held(self, is_mapped: bool) -> int:
        """Return the bytes of host memory that the model cannot do without, however slow it may get."""
        return self.host.resident if is_mapped else self.host.total

    @property
    def total(self) -> Use:
        return summed([self.host, *self.devices.values()])

    def __add__(self, other: Usage) -> Usage:
        names = dict.fromkeys([*self.devices, *other.devices])
        devices = {name: self.devices.get(name, Use()) + other.devices.get(name, Use()) for name in names}
        return Usage(devices, self.host + other.host)


def summed(uses: Iterable[Use]) -> Use:
    return sum(uses, Use())
