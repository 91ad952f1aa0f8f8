"""Owns the flags about LoRA adapters and control vectors. Pure data; must not compute."""

from __future__ import annotations

from functools import partial

from llamad.flags.types.flag import Flag
from llamad.flags.types.kinds import File, Float, Int, Many, Pair, Switch
from llamad.flags.types.special import Adapter, Plain, Scaled

flag = partial(Flag, group="Adapters")

FLAGS: tuple[Flag, ...] = (
    flag(
        names=("--lora",),
        dest="lora",
        kind=Many(Adapter()),
        env=("LLAMA_ARG_LORA",),
        default=(),
        repeat=True,
        help="LoRA adapter, for all requests; with a name for those that ask for the model MODEL:NAME"
        " (several: commas, or repeat); implies --no-mmap",
    ),
    flag(
        names=("--lora-scaled",),
        dest="lora",
        kind=Scaled(Adapter(), Float()),
        env=("LLAMA_ARG_LORA_SCALED",),
        default=(),
        repeat=True,
        metavar="[NAME=]PATH:SCALE",
        help="the same with a scale; also as two values, PATH SCALE",
    ),
    flag(
        names=("--lora-init-without-apply",),
        dest="lora_init_without_apply",
        kind=Switch(),
        env=("LLAMA_ARG_LORA_INIT_WITHOUT_APPLY",),
        default=False,
        help="load LoRA adapters with scale 0; POST /lora-adapters and requests can raise it",
    ),
    flag(
        names=("--lora-load-path",),
        dest="lora_load_path",
        kind=File(optional=True),
        env=("LLAMA_ARG_LORA_LOAD_PATH",),
        default=None,
        help="folder from which POST /v1/load_lora_adapter may load adapters (default: off)",
    ),
    flag(
        names=("--lora-load-max",),
        dest="lora_load_max",
        kind=Int(low=1, high=1000),
        env=("LLAMA_ARG_LORA_LOAD_MAX",),
        default=16,
        help="adapters loaded that way, at most",
    ),
    flag(
        names=("--control-vector",),
        dest="control_vector",
        kind=Many(Plain()),
        env=("LLAMA_ARG_CONTROL_VECTOR",),
        default=(),
        repeat=True,
        help="control vector (several: commas, or repeat)",
    ),
    flag(
        names=("--control-vector-scaled",),
        dest="control_vector",
        kind=Scaled(Plain(), Float()),
        env=("LLAMA_ARG_CONTROL_VECTOR_SCALED",),
        default=(),
        repeat=True,
        help="the same with a scale; also as two values, PATH SCALE",
    ),
    flag(
        names=("--control-vector-layer-range",),
        dest="control_vector_layer_range",
        kind=Pair(Int(), Int()),
        env=("LLAMA_ARG_CONTROL_VECTOR_LAYER_RANGE",),
        default=(0, 0),
        metavar="FIRST LAST",
        help="layers that control vectors are added to, both inclusive (default: all but the first)",
    ),
)
