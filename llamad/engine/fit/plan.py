"""Plans a load: finds the settings with which the model fits, and the memory that it will take.

Runs in the thread that loads, after the file was checked and before it is opened. A value that a flag sets is never
changed: the model fits with it, or the load is refused with the figures.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from llamad.engine.fit import store
from llamad.engine.fit.bound import margins_of, surely_fits
from llamad.engine.fit.measure import Device, Measurer, Shape
from llamad.engine.fit.search import Choice, ExpertTensors, Freedom, Machine, Need, UnfitError, fit
from llamad.engine.fit.usage import Usage
from llamad.engine.loading import memory
from llamad.flags.types.values import Placement
from llamad.protocol.errors import LoadError

if TYPE_CHECKING:
    from llamad.flags.settings import ModelSettings

# The last choice is used again if it leaves this share of the margin, and a new one could not add a layer or an eighth
# of the cache. Free memory is never quite the same, but a service should behave the same after a restart.
MARGIN_KEPT = 0.5
CACHE_PARTS = 8
# Patterns of the tensors of a layer that go to RAM.
PATTERNS: dict[ExpertTensors, str] = {
    "experts": r"ffn_(up|down|gate_up|gate)_(ch|)exps",
    "gate and down": r"ffn_(gate|gate_up|down).*",
    "down": r"ffn_down.*",
}


class UnfitLoadError(LoadError):
    """The model does not fit into this machine's memory with these flags."""


class Kept(msgspec.Struct, frozen=True):
    """The choice of an engine, for the next engine of the same daemon. `key` tells which load it is of."""

    key: str
    choice: Choice


class Plan(msgspec.Struct, frozen=True):
    """The settings of the load. If `usage` is None, they are those of the flags and certainly fit."""

    settings: ModelSettings
    usage: Usage | None = None
    devices: list[Device] = []
    choice: Choice = Choice()
    shape: Shape | None = None
    warnings: tuple[str, ...] = ()
    kept: Kept | None = None

    @property
    def is_changed(self) -> bool:
        return self.choice != Choice()


def with_choice(settings: ModelSettings, choice: Choice, n_layers: int) -> ModelSettings:
    """Return the settings with the choice applied."""
    changes: dict[str, object] = {"n_ctx": choice.n_ctx or settings.n_ctx}
    if choice.shares:
        changes["n_gpu_layers"] = choice.n_layers
        if len(choice.shares) > 1 and choice.n_layers:
            changes["tensor_split"] = tuple(float(share.n_layers) for share in choice.shares)
        layer = n_layers + 1 - choice.n_layers
        patterns = []
        for device, share in enumerate(choice.shares):
            has_output = device == len(choice.shares) - 1  # the output comes after all layers
            layer += share.n_layers - share.n_part - has_output
            for i in range(share.n_part):
                tensors: ExpertTensors = share.part if i == 0 else "experts"
                patterns.append(Placement(rf"blk\.{layer + i}\.{PATTERNS[tensors]}", "CPU"))
            layer += share.n_part
        changes["override_tensor"] = tuple(patterns)
    return msgspec.structs.replace(settings, **changes)


class Planner:
    """Makes one plan. With `always` it measures even a model that surely fits. `host_free` is the free host memory, if
    it is known. `kept` is the choice of the daemon's last engine: its clients count on the context that it had."""

    def __init__(
        self,
        settings: ModelSettings,
        n_threads: int,
        folder: Path | None = None,
        *,
        always: bool = False,
        host_free: int | None = None,
        kept: Kept | None = None,
    ) -> None:
        self._settings = settings
        self._n_threads = n_threads
        self._folder = folder
        self._always = always or kept is not None
        self._kept = kept
        self._host_free = memory.host_free() if host_free is None else host_free

    def usage(self) -> Usage:
        """Return the memory that the settings take, whether it fits or not. Raises LoadError."""
        measurer = Measurer(self._settings, self._n_threads)
        try:
            return measurer.usage(self._settings)
        finally:
            measurer.close()

    def plan(self) -> Plan:
        """Return the plan. Raises LoadError."""
        settings = self._settings
        if not self._always and surely_fits(settings):
            return Plan(settings)
        self._measurer = Measurer(settings, self._n_threads)
        try:
            self._devices = self._measurer.devices()
            self._shape = self._measurer.shape()
            self._store = store.Store(settings, self._devices, self._folder)
            plan = self._planned()
            self._store.save()
            return plan
        finally:
            self._measurer.close()

    # --- measuring

    def _usage(self, settings: ModelSettings, choice: Choice) -> Usage:
        chosen = with_choice(settings, choice, self._shape.n_layers)
        key = msgspec.json.encode([choice, chosen.n_ubatch, chosen.inputs_on_device]).decode()
        known = self._store.known.usages
        if key not in known:
            known[key] = self._measurer.usage(chosen)
        return known[key]

    def _need(self, settings: ModelSettings, choice: Choice) -> Need:
        usage = self._usage(settings, choice)
        uses = [usage.devices[device.name] for device in self._devices]
        host = self._held(usage) if self._devices else usage.host.total
        return Need(tuple(use.total for use in uses), host, sum(use.weights for use in uses))

    def _held(self, usage: Usage) -> int:
        """Return the bytes of host memory that the model cannot do without, however slow it may get."""
        return usage.host.resident if _is_mapped(self._settings) else usage.host.total

    def _machine(self, margin_part: float = 1.0, margin_min: int = 0) -> Machine:
        margins = [
            max(int(one * margin_part), margin_min) for one in margins_of(self._settings, len(self._devices))
        ]
        host = self._host_free
        if not self._devices:
            return Machine((), host - margins[0])
        rooms = [device.free - margin for device, margin in zip(self._devices, margins, strict=True)]
        return Machine(tuple(rooms), host)

    # --- choosing

    def _freedom(self) -> Freedom:
        settings, shape = self._settings, self._shape
        n_streams = 1 if settings.kv_unified else settings.n_parallel
        n_ctx_max = shape.n_ctx_train
        is_free = settings.fit == "on" and not settings.keeps_ctx
        n_ctx_min = min(n_ctx_max, settings.fit_ctx * n_streams) if is_free else n_ctx_max
        placed = (settings.tensor_split, settings.override_tensor, settings.n_cpu_moe, settings.n_cpu_ffn)
        return Freedom(
            n_ctx_min=n_ctx_min,
            n_ctx_max=n_ctx_max,
            n_streams=n_streams,
            n_layers=shape.n_layers,
            has_experts=shape.has_experts,
            may_place=settings.fit == "on"
            and settings.n_gpu_layers < 0
            and settings.split_mode in ("layer", "none")
            and not (any(placed) or settings.cpu_moe),
        )

    def _planned(self) -> Plan:
        lean = self._lean(self._settings)
        if (kept := self._kept_choice(lean)) is not None:
            return self._made(lean, kept)
        roomy = self._roomy()
        if roomy is not None:
            return roomy
        freedom = self._freedom()
        warnings: tuple[str, ...] = ()
        try:
            choice = self._last(lean) or fit(self._machine(), freedom, lambda one: self._need(lean, one))
        except UnfitError as error:
            choice = error.choice
            warnings = self._beyond_margin(lean, choice)
        self._store.known.choice, self._store.known.is_roomy = choice, False
        return self._made(lean, choice, warnings)

    def _made(self, settings: ModelSettings, choice: Choice, warnings: tuple[str, ...] = ()) -> Plan:
        chosen = with_choice(settings, choice, self._shape.n_layers)
        usage = self._usage(settings, choice)
        kept = Kept(self._store.key, choice) if choice != Choice() else None
        return Plan(chosen, usage, self._devices, choice, self._shape, warnings, kept)

    def _roomy(self) -> Plan | None:
        """Return the plan for GPUs with memory to spare: a larger batch, and the token embedding table on the GPU.
        Return None if there is not enough."""
        if not self._devices:
            return None
        settings = self._settings
        if settings.n_ubatch < 0 and settings.kv_offload:
            n_ubatch = min(memory.UBATCH_DEVICE, settings.n_batch)
            settings = msgspec.structs.replace(settings, n_ubatch=n_ubatch)
        settings = msgspec.structs.replace(settings, inputs_on_device=True)
        share = MARGIN_KEPT if self._store.known.is_roomy else 1.0
        machine = self._machine(margin_min=int(memory.SPARE_BYTES * share))
        if not machine.holds(self._need(settings, Choice())):
            return None
        self._store.known.choice, self._store.known.is_roomy = Choice(), True
        return self._made(settings, Choice())

    def _lean(self, settings: ModelSettings) -> ModelSettings:
        n_ubatch = settings.n_ubatch if settings.n_ubatch >= 0 else memory.ubatch(settings)
        return msgspec.structs.replace(settings, n_ubatch=n_ubatch, inputs_on_device=False)

    def _kept_choice(self, lean: ModelSettings) -> Choice | None:
        """Return the choice of the daemon's last engine, if it is of the same model and still fits."""
        if self._kept is None or self._kept.key != self._store.key:
            return None
        choice = self._kept.choice
        return choice if self._machine(MARGIN_KEPT).holds(self._need(lean, choice)) else None

    def _last(self, lean: ModelSettings) -> Choice | None:
        """Return the choice of the last start, if it still fits and another would not be much better; else None."""
        last = self._store.known.choice
        if last is None or last == Choice() or not self._machine(MARGIN_KEPT).holds(self._need(lean, last)):
            return None
        machine, need, usage = self._machine(), self._need(lean, last), self._usage(lean, last)
        spare = [machine.host - need.host] if not self._devices else []
        spare += [room - used for room, used in zip(machine.devices, need.devices, strict=True)]
        gain = usage.total.cache // CACHE_PARTS
        if last.shares:
            gain = max(gain, usage.total.weights // max(1, self._shape.n_layers))
        return last if max(spare) < gain else None

    def _beyond_margin(self, lean: ModelSettings, choice: Choice) -> tuple[str, ...]:
        """Return warnings about a choice that leaves no margin. Raises LoadError if it does not fit even then."""
        usage, host = self._usage(lean, choice), self._host_free
        for device in self._devices:
            if usage.devices[device.name].total > device.free:
                raise UnfitLoadError(self._refusal(usage, device.name, device.free, choice))
        if self._held(usage) > host:
            raise UnfitLoadError(self._refusal(usage, "this machine", host, choice))
        if self._devices or usage.host.total <= host:
            return ("the model fits, but leaves less memory free than --fit-target requests",)
        return (
            f"the weights take {gib(usage.host.weights)} and {gib(host)} of memory are free: parts of them will be"
            " read from the file again and again, which is slow",
        )

    def _refusal(self, usage: Usage, place: str, free: int, choice: Choice) -> str:
        use = usage.devices.get(place, usage.host)
        kinds = {"weights": use.weights, "KV cache": use.cache, "compute buffers": use.compute}
        kinds |= {"projector": use.projector, "adapters": use.adapters, "draft model": use.draft}
        parts = ", ".join(f"{name} {gib(n)}" for name, n in kinds.items() if n)
        n_ctx = choice.n_ctx or self._settings.n_ctx or self._shape.n_ctx_train
        layers = " or -ngl" if self._devices else ""
        return (
            f"the model with a context of {n_ctx} tokens takes {gib(use.total)} of {place} ({parts}), where"
            f" {gib(free)} are free; lower -c{layers}, store the cache smaller with -ctk q8_0 -ctv q8_0, or take a"
            " smaller model"
        )


def _is_mapped(settings: ModelSettings) -> bool:
    return settings.load_mode in ("mmap", "mmap+mlock") or (settings.load_mode == "auto" and settings.mmap)


def gib(n: int) -> str:
    return f"{n / (1 << 30):.2f} GiB"


def summary(plan: Plan) -> str:
    """Return one line that says what was chosen and why, or "" if nothing was."""
    if not plan.is_changed or plan.usage is None or plan.shape is None:
        return ""
    choice, shape = plan.choice, plan.shape
    chosen = []
    if choice.n_ctx:
        chosen.append(f"a context of {choice.n_ctx} tokens (the model has {shape.n_ctx_train})")
    if choice.shares:
        names = " and ".join(
            f"{share.n_layers} on {device.name}"
            for share, device in zip(choice.shares, plan.devices, strict=True)
        )
        experts = f", the experts of {choice.n_part} of them in RAM" if choice.n_part else ""
        chosen.append(f"{names} of {shape.n_layers + 1} layers{experts}")
    uses = [
        f"{gib(plan.usage.devices[one.name].total)} of {gib(one.free)} on {one.name}" for one in plan.devices
    ]
    host = plan.usage.host
    uses.append(f"{gib(host.total)} of RAM")
    return f"fit: {' and '.join(chosen)}, which takes {', '.join(uses)}; -c, -ngl or --fit off override it"


def plan(settings: ModelSettings, n_threads: int, kept: Kept | None = None) -> Plan:
    """Return the plan of a load. Raises LoadError."""
    return Planner(settings, n_threads, store.folder(os.environ), kept=kept).plan()
