"""Owns the flags about LoRA adapters and control vectors. Pure data; must not compute."""

from __future__ import annotations

from llamad.flags.types.declaration import flag, flags_of
from llamad.flags.types.flag import Flag
from llamad.flags.types.kinds import File, Float, Int, Many, Pair
from llamad.flags.types.model_files import Adapter, ControlVector, Scaled
from llamad.flags.types.values import AdapterFile, ScaledFile


class Adapters:
    """Settings about LoRA adapters and control vectors."""

    lora: tuple[AdapterFile, ...] = flag(
        names=("--lora",),
        kind=Many(Adapter()),
        env=("LLAMA_ARG_LORA",),
        default=(),
        repeat=True,
        help="LoRA adapter, for all requests; with a name for those that ask for the model MODEL:NAME"
        " (several: commas, or repeat); implies --no-mmap",
        also=(
            Flag(
                names=("--lora-scaled",),
                kind=Scaled(Adapter(), Float()),
                env=("LLAMA_ARG_LORA_SCALED",),
                repeat=True,
                metavar="[NAME=]PATH:SCALE",
                help="the same with a scale; also as two values, PATH SCALE",
            ),
        ),
    )
    lora_init_without_apply: bool = flag(
        names=("--lora-init-without-apply",),
        env=("LLAMA_ARG_LORA_INIT_WITHOUT_APPLY",),
        default=False,
        help="load LoRA adapters with scale 0; POST /lora-adapters and requests can raise it",
    )
    lora_load_path: str | None = flag(
        names=("--lora-load-path",),
        kind=File(),
        env=("LLAMA_ARG_LORA_LOAD_PATH",),
        default=None,
        help="folder from which POST /v1/load_lora_adapter may load adapters (default: off)",
    )
    lora_load_max: int = flag(
        names=("--lora-load-max",),
        kind=Int(low=1, high=1000),
        env=("LLAMA_ARG_LORA_LOAD_MAX",),
        default=16,
        help="adapters loaded that way, at most",
    )
    control_vector: tuple[ScaledFile, ...] = flag(
        names=("--control-vector",),
        kind=Many(ControlVector()),
        env=("LLAMA_ARG_CONTROL_VECTOR",),
        default=(),
        repeat=True,
        help="control vector (several: commas, or repeat)",
        also=(
            Flag(
                names=("--control-vector-scaled",),
                kind=Scaled(ControlVector(), Float()),
                env=("LLAMA_ARG_CONTROL_VECTOR_SCALED",),
                repeat=True,
                help="the same with a scale; also as two values, PATH SCALE",
            ),
        ),
    )
    # 0: the first layer, or the last.
    control_vector_layer_range: tuple[int, int] = flag(
        names=("--control-vector-layer-range",),
        kind=Pair(Int(), Int()),
        env=("LLAMA_ARG_CONTROL_VECTOR_LAYER_RANGE",),
        default=(0, 0),
        metavar="FIRST LAST",
        help="layers that control vectors are added to, both inclusive (default: all but the first)",
    )


FLAGS = flags_of(Adapters, "Adapters")
