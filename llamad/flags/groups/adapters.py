"""The flags about LoRA adapters and control vectors. Pure data; must not compute."""

from __future__ import annotations

from llamad.flags.types.declaration import flag, flags_of
from llamad.flags.types.flag import Flag
from llamad.flags.types.kinds import File, Float, Int, Many, Pair
from llamad.flags.types.model_files import Adapter, ControlVector, Scaled
from llamad.flags.types.values import AdapterFile, ScaledFile


class Adapters:
    """Settings about LoRA adapters and control vectors."""

    lora: tuple[AdapterFile, ...] = flag(
        kind=Many(Adapter()),
        default=(),
        repeat=True,
        help="LoRA adapters for all requests, separated by commas; those with a name are only for requests with the"
        " model MODEL:NAME. Implies --no-mmap. May be repeated.",
        also=(
            Flag(
                names=("--lora-scaled",),
                kind=Scaled(Adapter(), Float()),
                env=("LLAMA_ARG_LORA_SCALED",),
                repeat=True,
                metavar="[NAME=]PATH:SCALE",
                help="The same with a scale, which may also be a second value: PATH SCALE.",
            ),
        ),
    )
    lora_init_without_apply: bool = flag(
        default=False,
        help="Load LoRA adapters with scale 0; POST /lora-adapters and requests can raise it.",
    )
    lora_load_path: str | None = flag(
        kind=File(),
        default=None,
        help="Folder from which POST /v1/load_lora_adapter may load adapters; default: off.",
    )
    lora_load_max: int = flag(
        kind=Int(low=1, high=1000),
        default=16,
        help="Maximum adapters that are loaded from --lora-load-path.",
    )
    control_vector: tuple[ScaledFile, ...] = flag(
        kind=Many(ControlVector()),
        default=(),
        repeat=True,
        help="Control vectors, separated by commas. May be repeated.",
        also=(
            Flag(
                names=("--control-vector-scaled",),
                kind=Scaled(ControlVector(), Float()),
                env=("LLAMA_ARG_CONTROL_VECTOR_SCALED",),
                repeat=True,
                help="The same with a scale, which may also be a second value: PATH SCALE.",
            ),
        ),
    )
    # 0 stands for the first possible layer and for the last layer.
    control_vector_layer_range: tuple[int, int] = flag(
        kind=Pair(Int(), Int()),
        default=(0, 0),
        metavar="FIRST LAST",
        help="Layers that control vectors are added to, both inclusive; default: all except the first.",
    )


FLAGS = flags_of(Adapters, "Adapters")
