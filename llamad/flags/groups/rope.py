"""Owns the flags that extend a model's context: RoPE scaling and YaRN. Pure data; must not compute."""

from __future__ import annotations

from functools import partial

from llamad.flags.types.flag import Flag
from llamad.flags.types.kinds import Choice, Float, Int
from llamad.flags.types.special import Inverse

flag = partial(Flag, group="RoPE and YaRN")

FLAGS: tuple[Flag, ...] = (
    flag(
        names=("--rope-scaling",),
        env=("LLAMA_ARG_ROPE_SCALING_TYPE",),
        dest="rope_scaling",
        kind=Choice(("none", "linear", "yarn"), optional=True),
        default=None,
        metavar="METHOD",
        help="RoPE scaling method; default: from the model.",
    ),
    flag(
        names=("--rope-scale",),
        env=("LLAMA_ARG_ROPE_SCALE",),
        dest="rope_freq_scale",
        kind=Inverse(above=0.0),
        default=0.0,
        help="Context scaling factor; same as --rope-freq-scale 1/N.",
    ),
    flag(
        names=("--rope-freq-base",),
        env=("LLAMA_ARG_ROPE_FREQ_BASE",),
        dest="rope_freq_base",
        kind=Float(low=0.0),
        default=0.0,
        help="RoPE base frequency; 0: from the model.",
    ),
    flag(
        names=("--rope-freq-scale",),
        env=("LLAMA_ARG_ROPE_FREQ_SCALE",),
        dest="rope_freq_scale",
        kind=Float(low=0.0),
        default=0.0,
        help="RoPE frequency scale: extends the context by 1/N; 0: from the model.",
    ),
    flag(
        names=("--yarn-orig-ctx",),
        env=("LLAMA_ARG_YARN_ORIG_CTX",),
        dest="yarn_orig_ctx",
        kind=Int(low=0),
        default=0,
        help="YaRN: context size the model was trained with; 0: from the model.",
    ),
    flag(
        names=("--yarn-ext-factor",),
        env=("LLAMA_ARG_YARN_EXT_FACTOR",),
        dest="yarn_ext_factor",
        kind=Float(),
        default=-1.0,
        help="YaRN: extrapolation mix, 0: interpolation only; negative: from the model.",
    ),
    flag(
        names=("--yarn-attn-factor",),
        env=("LLAMA_ARG_YARN_ATTN_FACTOR",),
        dest="yarn_attn_factor",
        kind=Float(),
        default=-1.0,
        help="YaRN: attention magnitude scale; negative: from the model.",
    ),
    flag(
        names=("--yarn-beta-slow",),
        env=("LLAMA_ARG_YARN_BETA_SLOW",),
        dest="yarn_beta_slow",
        kind=Float(),
        default=-1.0,
        help="YaRN: high correction dimension; negative: from the model.",
    ),
    flag(
        names=("--yarn-beta-fast",),
        env=("LLAMA_ARG_YARN_BETA_FAST",),
        dest="yarn_beta_fast",
        kind=Float(),
        default=-1.0,
        help="YaRN: low correction dimension; negative: from the model.",
    ),
)
