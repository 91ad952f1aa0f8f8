"""Owns the flags about LoRA adapters and control vectors. Pure data; must not compute."""

from __future__ import annotations

from functools import partial

from llamad.flags.types.flag import Flag, Inert, Later
from llamad.flags.types.kinds import File, Float, Int, Many, Pair, Switch

flag = partial(Flag, group="Adapters")

LORA = Later("LoRA adapters")
CONTROL = Later("control vectors")
SCALED = Pair(File(), Float())

FLAGS: tuple[Flag, ...] = (
    flag(names=("--lora",), dest="lora", kind=Many(File()), default=(), repeat=True, status=LORA),
    flag(names=("--lora-scaled",), dest="lora_scaled", kind=SCALED, default=None, status=LORA),
    flag(
        names=("--lora-init-without-apply",),
        dest="lora_init_without_apply",
        kind=Switch(),
        default=False,
        status=Inert("there are no LoRA adapters"),
    ),
    flag(
        names=("--control-vector",),
        dest="control_vector",
        kind=Many(File()),
        default=(),
        repeat=True,
        status=CONTROL,
    ),
    flag(
        names=("--control-vector-scaled",),
        dest="control_vector_scaled",
        kind=SCALED,
        default=None,
        status=CONTROL,
    ),
    flag(
        names=("--control-vector-layer-range",),
        dest="control_vector_layer_range",
        kind=Pair(Int(), Int()),
        default=None,
        status=Inert("there are no control vectors"),
    ),
)
