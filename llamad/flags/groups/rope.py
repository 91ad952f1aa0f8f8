"""The flags that extend a model's context: RoPE scaling and YaRN. Pure data; must not compute."""

from __future__ import annotations

from typing import Literal

from llamad.flags.types.declaration import flag, flags_of
from llamad.flags.types.flag import Flag
from llamad.flags.types.kinds import Float, Int, Inverse


class Rope:
    """Settings that extend a model's context."""

    rope_scaling: Literal["none", "linear", "yarn"] | None = flag(
        env=("LLAMA_ARG_ROPE_SCALING_TYPE",),
        default=None,
        metavar="METHOD",
        help="RoPE scaling method; default: from the model.",
    )
    rope_freq_scale: float = flag(
        names=("--rope-scale",),
        kind=Inverse(above=0.0),
        default=0.0,
        help="Context scaling factor; same as --rope-freq-scale 1/N.",
        also=(
            Flag(
                names=("--rope-freq-scale",),
                env=("LLAMA_ARG_ROPE_FREQ_SCALE",),
                kind=Float(low=0.0),
                help="RoPE frequency scale: extends the context by 1/N; 0: from the model.",
            ),
        ),
    )
    rope_freq_base: float = flag(
        kind=Float(low=0.0),
        default=0.0,
        help="RoPE base frequency; 0: from the model.",
    )
    yarn_orig_ctx: int = flag(
        kind=Int(low=0),
        default=0,
        help="YaRN: context size the model was trained with; 0: from the model.",
    )
    yarn_ext_factor: float = flag(
        kind=Float(),
        default=-1.0,
        help="YaRN: extrapolation mix, 0: interpolation only; negative: from the model.",
    )
    yarn_attn_factor: float = flag(
        kind=Float(),
        default=-1.0,
        help="YaRN: attention magnitude scale; negative: from the model.",
    )
    yarn_beta_slow: float = flag(
        kind=Float(),
        default=-1.0,
        help="YaRN: high correction dimension; negative: from the model.",
    )
    yarn_beta_fast: float = flag(
        kind=Float(),
        default=-1.0,
        help="YaRN: low correction dimension; negative: from the model.",
    )


FLAGS = flags_of(Rope, "RoPE and YaRN")
