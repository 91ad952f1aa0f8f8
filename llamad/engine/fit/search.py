"""Decides how a model fits the memory of its devices: first a smaller context, then experts, then layers on the host.

Pure: a function tells it how much memory a choice would take, and it knows neither llama.cpp nor settings. The order
and the steps are those of llama-server's --fit, so that both programs choose alike.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import msgspec

ExpertTensors = Literal["experts", "gate and down", "down"]

CELLS_STEP = 256  # llama.cpp rounds contexts to this many tokens
CONTEXTS_TRIED = 6


class Share(msgspec.Struct, frozen=True):
    """The layers of a device. The experts of the last `n_part` of them are on the host; of the first of these only the
    tensors that `part` names."""

    n_layers: int = 0
    n_part: int = 0
    part: ExpertTensors = "experts"


class Choice(msgspec.Struct, frozen=True):
    """A choice of what the flags leave open. 0 tokens or no shares mean that the flags decide."""

    n_ctx: int = 0
    shares: tuple[Share, ...] = ()

    @property
    def n_layers(self) -> int:
        return sum(share.n_layers for share in self.shares)

    @property
    def n_part(self) -> int:
        return sum(share.n_part for share in self.shares)


class Need(msgspec.Struct, frozen=True):
    """The bytes that a choice takes of each device and of the host, and how many of the devices' bytes are weights."""

    devices: tuple[int, ...]
    host: int
    weights: int = 0


class Machine(msgspec.Struct, frozen=True):
    """The bytes of each device and of the host that may be used: the free ones minus a margin."""

    devices: tuple[int, ...]
    host: int

    def holds(self, need: Need) -> bool:
        return need.host <= self.host and all(n <= m for n, m in zip(need.devices, self.devices, strict=True))


class Freedom(msgspec.Struct, frozen=True):
    """What may be chosen: a context between two sizes (nothing if they are equal), and the devices of the layers."""

    n_ctx_min: int
    n_ctx_max: int
    n_streams: int
    n_layers: int  # layers of the model, without the output
    has_experts: bool
    may_place: bool


class UnfitError(Exception):
    """The model does not fit, whatever is chosen. It has the smallest choice and the memory that it would take."""

    def __init__(self, choice: Choice, need: Need) -> None:
        super().__init__(choice, need)
        self.choice = choice
        self.need = need


Measure = Callable[[Choice], Need]


def fit(machine: Machine, freedom: Freedom, measure: Measure) -> Choice:
    """Return the largest choice that fits. Raises UnfitError."""
    choice = Choice()
    need = measure(choice)
    if machine.holds(need):
        return choice
    if freedom.n_ctx_max > freedom.n_ctx_min:
        choice = Choice(_context(machine, freedom, measure, need))
        need = measure(choice)
        if machine.holds(need):
            return choice
    if not machine.devices or not freedom.may_place:
        raise UnfitError(choice, need)
    choice = _placed(machine, freedom, measure, choice.n_ctx)
    need = measure(choice)
    if not machine.holds(need):
        raise UnfitError(choice, need)
    return choice


def _placed(machine: Machine, freedom: Freedom, measure: Measure, n_ctx: int) -> Choice:
    """Return the choice with layers for each device. If the devices waste more than was counted, try contexts that are
    a little smaller, to keep all layers on the devices; llama-server does not try that."""
    choice = _Placing(machine, freedom, measure, n_ctx).place()
    for _ in range(CONTEXTS_TRIED if n_ctx > freedom.n_ctx_min else 0):
        if choice.n_layers == freedom.n_layers + 1:
            break
        n_ctx -= (n_ctx - freedom.n_ctx_min) // 16
        n_ctx = max(freedom.n_ctx_min, n_ctx - n_ctx % (CELLS_STEP * freedom.n_streams))
        choice = _Placing(machine, freedom, measure, n_ctx).place()
    return choice


def _context(machine: Machine, freedom: Freedom, measure: Measure, whole: Need) -> int:
    """Return the largest context with which everything fits into all devices together, or the smallest allowed one."""
    low, high = freedom.n_ctx_min, freedom.n_ctx_max
    step = CELLS_STEP * freedom.n_streams
    room = sum(machine.devices) - _waste(freedom, whole)

    def over(need: Need) -> tuple[int, int]:
        return sum(need.devices) - room if machine.devices else 0, need.host - machine.host

    # A context that fits and one that does not, each with the bytes that it lacks.
    fits, lacks = (low, over(measure(Choice(low)))), (high, over(whole))
    if max(fits[1]) > 0:
        return low
    for _ in range(CONTEXTS_TRIED):
        n_ctx = _between(fits, lacks)
        n_ctx -= n_ctx % step
        if n_ctx <= fits[0] + fits[0] // 64:  # not worth another measurement
            break
        lack = over(measure(Choice(n_ctx)))
        fits, lacks = ((n_ctx, lack), lacks) if max(lack) <= 0 else (fits, (n_ctx, lack))
    return fits[0]


Point = tuple[int, tuple[int, int]]


def _between(fits: Point, lacks: Point) -> int:
    """Return the context that takes exactly the available memory, if memory grows linearly between the two. It nearly
    does, except that compute buffers grow in steps."""
    (low, spare), (high, lack) = fits, lacks
    guesses = [
        low + (high - low) * -small // (large - small)
        for small, large in zip(spare, lack, strict=True)
        if large > 0
    ]
    return min(guesses, default=low)


def _waste(freedom: Freedom, whole: Need) -> int:
    """Return the bytes that several devices cannot use. Each holds whole layers (or thirds of one, if the model has
    experts), and wastes half of that on average. One more device is counted, to be safe."""
    n_devices = len(whole.devices)
    if n_devices < 2:
        return 0
    layer = whole.weights // max(1, freedom.n_layers)
    return (n_devices + 1) * layer // (6 if freedom.has_experts else 2)


class _Placing:
    """Distributes the layers over the devices, for a given context."""

    def __init__(self, machine: Machine, freedom: Freedom, measure: Measure, n_ctx: int) -> None:
        self._machine = machine
        self._freedom = freedom
        self._measure = measure
        self._n_ctx = n_ctx
        self._n_devices = len(machine.devices)

    def place(self) -> Choice:
        shares = self._filled()
        n_layers = sum(share.n_layers for share in shares)
        if self._freedom.has_experts and n_layers == self._freedom.n_layers + 1:
            shares = self._with_experts(shares)
        return Choice(self._n_ctx, tuple(shares))

    def _fits(self, device: int, shares: list[Share]) -> bool:
        need = self._measure(Choice(self._n_ctx, tuple(shares)))
        return need.devices[device] <= self._machine.devices[device]

    def _filled(self) -> list[Share]:
        """Fill the devices from the last one, which has the output, to the first. All experts are on the host."""
        shares = [Share()] * self._n_devices
        n_left = self._freedom.n_layers + 1
        for device in reversed(range(self._n_devices)):
            n = _most(n_left, partial(self._fits_with, shares, device))
            shares[device] = self._share(device, n)
            n_left -= n
        return shares

    def _share(self, device: int, n_layers: int) -> Share:
        # The output, which is on the last device, has no experts.
        n_part = n_layers if device < self._n_devices - 1 else max(0, n_layers - 1)
        return Share(n_layers, n_part if self._freedom.has_experts else 0)

    def _fits_with(self, shares: list[Share], device: int, n_layers: int) -> bool:
        return self._fits(device, [*shares[:device], self._share(device, n_layers), *shares[device + 1 :]])

    def _fits_whole(self, shares: list[Share], device: int, n: int) -> bool:
        return self._fits(device, _whole(shares, device, n))

    def _with_experts(self, shares: list[Share]) -> list[Share]:
        """Move experts back to the layers' devices, from the first device to the last; then some tensors of one more
        layer."""
        for device in range(self._n_devices):
            n_max = sum(share.n_part for share in shares[device:])
            n = _most(n_max, partial(self._fits_whole, shares, device))
            shares = _whole(shares, device, n)
            if self._n_devices == 1 and shares[0].n_part:
                for tensors in ("gate and down", "down"):
                    share = msgspec.structs.replace(shares[0], part=tensors)
                    if not self._fits(0, [share]):
                        break
                    shares = [share]
        return shares


def _whole(shares: list[Share], device: int, n: int) -> list[Share]:
    """Return the shares with n more whole layers on this device: its own first, then those of the next devices."""
    made = list(shares)
    for other in range(device, len(made)):
        k = min(n, made[other].n_part)
        n -= k
        made[other] = Share(made[other].n_layers - k, made[other].n_part - k)
        made[device] = Share(made[device].n_layers + k, made[device].n_part)
    return made


def _most(n_max: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to n_max that fits, assuming that every smaller one fits, too; 0 always fits."""
    low, high = 0, n_max
    if n_max and fits(n_max):
        return n_max
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
