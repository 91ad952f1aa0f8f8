"""Plans a load: finds the settings with which the model fits, and the memory that it will take.

Runs in the thread that loads, after the file was checked and before it is opened. A value that a flag sets is never
changed: the model fits with it, or the load is refused with the figures. The only model of a daemon gets all that is
free; one of several gets its part of the budget, which is the same whatever else is loaded.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from llamad.engine.fit import budget as budgets
from llamad.engine.fit import store
from llamad.engine.fit.bound import margins_of, surely_fits
from llamad.engine.fit.budget import Available
from llamad.engine.fit.measure import Measurer, all_devices, described
from llamad.engine.fit.planned import Kept, Plan, gib, shown, with_choice
from llamad.engine.fit.search import Choice, Freedom, Machine, Need, UnfitError, fit
from llamad.engine.fit.usage import Usage
from llamad.engine.loading import memory
from llamad.protocol.control_messages import Budget
from llamad.protocol.errors import MemoryShort

if TYPE_CHECKING:
    from llamad.flags.settings import ModelSettings

# The last choice is used again if it leaves this share of the margin, and a new one could not add a layer or an eighth
# of the cache. Free memory is never quite the same, but a service should behave the same after a restart.
MARGIN_KEPT = 0.5
CACHE_PARTS = 8
SPLIT_PARTS = 64  # a split by the devices' sizes is rounded to such parts, so that it stays the same


class UnfitLoadError(MemoryShort):
    """The model does not fit into this machine's memory with these flags."""


class Planner:
    """Makes one plan. With `always` it measures even a model that surely fits. `host_free` is the free host memory, if
    it is known. `kept` is the choice of the daemon's last engine: its clients count on the context that it had. A plan
    for a budget is always measured."""

    def __init__(
        self,
        settings: ModelSettings,
        n_threads: int,
        folder: Path | None = None,
        *,
        always: bool = False,
        host_free: int | None = None,
        kept: Kept | None = None,
        budget: Budget | None = None,
    ) -> None:
        self._settings = settings
        self._n_threads = n_threads
        self._folder = folder
        self._always = always or kept is not None or budget is not None
        self._kept = kept
        self._budget = budget
        # Which part of which room, as the key of what is stored; "" without a budget.
        self._share = f"{budget.share:g} {budget.spare}" if budget is not None else ""
        self._measurer: Measurer | None = None  # opened when something must be measured
        self._part = 1.0  # the part of the room that the model may take
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
        try:
            self._recall()
            self._available = self._measure_available()
            self._last_choice = self._store.known.last(self._share)
            plan = self._planned()
            self._store.save()
            return plan
        finally:
            if self._measurer is not None:
                self._measurer.close()

    def _opened(self) -> Measurer:
        if self._measurer is None:
            self._measurer = Measurer(self._settings, self._n_threads)
        return self._measurer

    def _recall(self) -> None:
        """Find the model's devices and its shape. A plan for a budget takes them from an earlier one, because a model
        that is loaded again and again should not be opened twice each time."""
        settings = self._settings
        if self._budget is None:
            self._devices, self._shape = self._opened().devices(), self._opened().shape()
            self._store = store.Store(settings, self._devices, self._folder)
            return
        self._store = store.Store(settings, all_devices(), self._folder)
        known = self._store.known
        if known.shape is None:
            self._devices, known.shape = self._opened().devices(), self._opened().shape()
            known.devices = [device.name for device in self._devices]
        else:
            self._devices = [described(name) for name in known.devices]
        self._shape = known.shape

    def _measure_available(self) -> Available:
        margins = margins_of(self._settings, len(self._devices))
        if self._budget is not None:
            return budgets.available(self._budget, self._devices, margins)
        return Available(tuple(device.free for device in self._devices), self._host_free, tuple(margins))

    # --- measuring

    def _usage(self, settings: ModelSettings, choice: Choice) -> Usage:
        chosen = self._with_choice(settings, choice)
        split = [chosen.tensor_split] if self._budget is not None else []
        key = msgspec.json.encode([choice, chosen.n_ubatch, chosen.inputs_on_device, *split]).decode()
        known = self._store.known.usages
        if key not in known:
            known[key] = self._opened().usage(chosen)
        return known[key]

    def _with_choice(self, settings: ModelSettings, choice: Choice) -> ModelSettings:
        """Return the settings with the choice applied. With a budget they split the layers by what the devices offer to
        this model, because llama.cpp would split them by what happens to be free."""
        chosen = with_choice(settings, choice, self._shape.n_layers)
        rooms = self._available.devices
        is_split = len(rooms) > 1 and settings.split_mode == "layer" and min(rooms) > 0
        if self._budget is None or not is_split or chosen.tensor_split:
            return chosen
        split = tuple(float(round(SPLIT_PARTS * one / sum(rooms))) for one in rooms)
        return msgspec.structs.replace(chosen, tensor_split=split)

    def _need(self, settings: ModelSettings, choice: Choice) -> Need:
        usage = self._usage(settings, choice)
        uses = [usage.devices[device.name] for device in self._devices]
        host = usage.held(memory.is_mapped(self._settings)) if self._devices else usage.host.total
        return Need(tuple(use.total for use in uses), host, sum(use.weights for use in uses))

    def _machine(self, margin_part: float = 1.0, margin_min: int = 0, *, is_sparing: bool = True) -> Machine:
        free = self._available
        margins = [max(int(one * margin_part), margin_min) for one in free.margins]
        spare = self._budget.spare if self._budget is not None and is_sparing else 0
        if not self._devices:
            return Machine((), self._allowed(free.host - margins[0], budgets.PROCESS_BYTES) - spare)
        rooms = [
            self._allowed(n - margin, budgets.CONTEXT_BYTES) - spare
            for n, margin in zip(free.devices, margins, strict=True)
        ]
        return Machine(tuple(rooms), self._allowed(free.host, budgets.PROCESS_BYTES))

    def _allowed(self, room: int, process: int) -> int:
        """Return the part of the room that the model may take. The share includes the memory of its process, which was
        subtracted from the room."""
        return room if self._part == 1.0 else int((room + process) * self._part) - process

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
        if self._budget is not None and self._budget.share < 1.0:
            self._part = self._budget.share
            plan = self._whole(lean)
            if plan is not None:
                return plan
            self._part = 1.0
        roomy = self._roomy()
        if roomy is not None:
            return roomy
        warnings: tuple[str, ...] = ()
        try:
            choice = self._last(lean) or self._fit(lean, self._freedom())
        except UnfitError as error:
            choice = error.choice
            warnings = self._beyond_margin(lean, choice)
        return self._chosen(lean, choice, warnings)

    def _fit(self, lean: ModelSettings, freedom: Freedom) -> Choice:
        return fit(self._machine(), freedom, lambda one: self._need(lean, one))

    def _whole(self, lean: ModelSettings) -> Plan | None:
        """Return a plan with nothing on the host that could be on a device, or None if that does not fit."""
        roomy = self._roomy()
        if roomy is not None:
            return roomy
        freedom = self._freedom()
        if len(self._devices) < 2:  # layers could only go to the host
            freedom = msgspec.structs.replace(freedom, may_place=False)
        try:
            choice = self._last(lean) or self._fit(lean, freedom)
        except UnfitError as error:
            choice = error.choice
            # A load that failed is tried again with the smallest size, and not with a larger one.
            if not self._machine(is_sparing=False).holds(error.need):
                return None
        is_whole = not choice.shares or (choice.n_layers == self._shape.n_layers + 1 and not choice.n_part)
        return self._chosen(lean, choice) if is_whole else None

    def _chosen(self, lean: ModelSettings, choice: Choice, warnings: tuple[str, ...] = ()) -> Plan:
        self._last_choice.choice, self._last_choice.is_roomy = choice, False
        return self._made(lean, choice, warnings)

    def _made(self, settings: ModelSettings, choice: Choice, warnings: tuple[str, ...] = ()) -> Plan:
        chosen, usage = self._with_choice(settings, choice), self._usage(settings, choice)
        kept = Kept(self._store.key, choice, self._share) if choice != Choice() else None
        self._check_others(usage, choice)
        available = self._with_others(usage) if self._budget is not None else None
        return Plan(chosen, usage, self._devices, choice, self._shape, warnings, kept, available)

    def _check_others(self, usage: Usage, choice: Choice) -> None:
        """Check the devices that only the draft model or the projector uses. Raises LoadError."""
        names = {device.name for device in self._devices}
        for name, use in usage.devices.items():
            if name not in names and use.total and use.total > (free := described(name).free):
                raise self._refusal(usage, name, free, choice)

    def _with_others(self, usage: Usage) -> Available:
        """Return what is available, with the devices that only the draft model or the projector uses."""
        assert self._budget is not None
        capacity = dict(self._available.capacity)
        names = budgets.daemon_names()
        for device in usage.devices:
            name = names.get(device, device)
            if name not in capacity:
                capacity[name] = budgets.device_capacity(described(device), name, self._budget)
        return msgspec.structs.replace(self._available, capacity=capacity)

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
        share = MARGIN_KEPT if self._last_choice.is_roomy else 1.0
        machine = self._machine(margin_min=int(memory.SPARE_BYTES * share))
        if not machine.holds(self._need(settings, Choice())):
            return None
        self._last_choice.choice, self._last_choice.is_roomy = Choice(), True
        return self._made(settings, Choice())

    def _lean(self, settings: ModelSettings) -> ModelSettings:
        n_ubatch = settings.n_ubatch if settings.n_ubatch >= 0 else memory.ubatch(settings)
        return msgspec.structs.replace(settings, n_ubatch=n_ubatch, inputs_on_device=False)

    def _kept_choice(self, lean: ModelSettings) -> Choice | None:
        """Return the choice of the daemon's last engine, if it is of the same model and still fits."""
        if self._kept is None or (self._kept.key, self._kept.share) != (self._store.key, self._share):
            return None
        choice = self._kept.choice
        return choice if self._machine(MARGIN_KEPT).holds(self._need(lean, choice)) else None

    def _last(self, lean: ModelSettings) -> Choice | None:
        """Return the choice of the last start, if it still fits and another would not be much better; else None."""
        last = self._last_choice.choice
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
        usage, host = self._usage(lean, choice), self._available.host
        for device, free in zip(self._devices, self._available.devices, strict=True):
            if usage.devices[device.name].total > free:
                raise self._refusal(usage, device.name, free, choice)
        if usage.held(memory.is_mapped(self._settings)) > host:
            raise self._refusal(usage, "this machine", host, choice)
        if self._devices or usage.host.total <= host:
            return ("the model fits, but leaves less memory free than --fit-target requests",)
        return (
            f"the weights take {gib(usage.host.weights)} and {gib(host)} of memory are free: parts of them will be"
            " read from the file again and again, which is slow",
        )

    def _refusal(self, usage: Usage, place: str, free: int, choice: Choice) -> UnfitLoadError:
        n_ctx = choice.n_ctx or self._settings.n_ctx or self._shape.n_ctx_train
        left = f"{gib(max(0, free))} are {'free' if self._budget is None else 'left for it'}"
        layers = " or -ngl" if self._devices else ""
        is_limited = self._budget is not None and self._budget.bytes_max
        advice = "raise --models-memory-max" if is_limited else "take a smaller model"
        return UnfitLoadError(
            f"the model with a context of {n_ctx} tokens takes {shown(usage, place)}, where {left}; lower -c{layers},"
            f" store the cache smaller with -ctk q8_0 -ctv q8_0, or {advice}"
        )


def plan(
    settings: ModelSettings, n_threads: int, kept: Kept | None = None, budget: Budget | None = None
) -> Plan:
    """Return the plan of a load. Raises LoadError."""
    return Planner(settings, n_threads, store.folder(os.environ), kept=kept, budget=budget).plan()
