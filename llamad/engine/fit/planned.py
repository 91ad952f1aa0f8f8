"""A plan of a load: the settings that were chosen, the memory that they take, and both in words. Plain data."""

from __future__ import annotations

import msgspec

from llamad.engine.fit.budget import Available
from llamad.engine.fit.measure import Device, Shape
from llamad.engine.fit.search import Choice, ExpertTensors
from llamad.engine.fit.usage import Usage
from llamad.engine.loading import memory
from llamad.flags.settings import ModelSettings
from llamad.flags.types.values import Placement

# Patterns of the tensors of a layer that go to RAM.
PATTERNS: dict[ExpertTensors, str] = {
    "experts": r"ffn_(up|down|gate_up|gate)_(ch|)exps",
    "gate and down": r"ffn_(gate|gate_up|down).*",
    "down": r"ffn_down.*",
}


class Kept(msgspec.Struct, frozen=True):
    """The choice of an engine, for the next engine of the same daemon. `key` tells which load it is of, and `share` for
    which share of the memory it was made ("": for all that was free)."""

    key: str
    choice: Choice
    share: str = ""


class Plan(msgspec.Struct, frozen=True):
    """The settings of the load. If `usage` is None, they are those of the flags and certainly fit."""

    settings: ModelSettings
    usage: Usage | None = None
    devices: list[Device] = []
    choice: Choice = Choice()
    shape: Shape | None = None
    warnings: tuple[str, ...] = ()
    kept: Kept | None = None
    available: Available | None = None  # what the budget offers; None without one

    @property
    def is_changed(self) -> bool:
        return self.choice != Choice()

    def need(self, usage: Usage) -> dict[str, int]:
        """Return the bytes by device of what such a load takes, or nothing without a budget."""
        is_mapped = memory.is_mapped(self.settings)
        return self.available.need(usage, is_mapped) if self.available is not None else {}


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


def gib(n: int) -> str:
    return f"{n / (1 << 30):.2f} GiB"


def shown(usage: Usage, place: str) -> str:
    """Return the memory that a model takes of a device or of the host, with its parts."""
    use = usage.devices.get(place, usage.host)
    kinds = {"weights": use.weights, "KV cache": use.cache, "compute buffers": use.compute}
    kinds |= {"projector": use.projector, "adapters": use.adapters, "draft model": use.draft}
    parts = ", ".join(f"{name} {gib(n)}" for name, n in kinds.items() if n)
    return f"{gib(use.total)} of {place} ({parts})"


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
    free = plan.available.devices if plan.available is not None else [one.free for one in plan.devices]
    uses = [
        f"{gib(plan.usage.devices[one.name].total)} of {gib(n)} on {one.name}"
        for one, n in zip(plan.devices, free, strict=True)
    ]
    host = plan.usage.host
    uses.append(f"{gib(host.total)} of RAM")
    return f"fit: {' and '.join(chosen)}, which takes {', '.join(uses)}; -c, -ngl or --fit off override it"
