"""Owns the flags that set the sampling defaults: those of the table of options, and a few without an option.
Pure data; must not compute."""

from __future__ import annotations

from functools import partial

from llamad.flags.types.flag import Flag, Inert
from llamad.flags.types.kinds import Switch
from llamad.flags.types.option_flags import option_flag
from llamad.flags.types.special import SamplerLetters
from llamad.options.sampler_names import LETTERS
from llamad.options.table import FIELDS, WITH_FLAG

GROUP = "Sampling defaults"
ELSEWHERE = (
    "cache_prompt",
    "n_cache_reuse",
    "n_keep",
    "n_predict",
)  # in the groups of slots, context and limits

flag = partial(Flag, group=GROUP)

SAMPLER_LETTERS = flag(
    names=("--sampler-seq", "--sampling-seq"),
    env=("LLAMA_ARG_SAMPLING_SEQ",),
    dest="samplers",
    kind=SamplerLetters(),
    default=FIELDS["samplers"].default,
    help=f"The samplers, one letter each: {', '.join(' '.join(pair) for pair in LETTERS.items())}.",
)

OTHER_FLAGS: tuple[Flag, ...] = (
    flag(
        names=("-bs", "--backend-sampling"),
        env=("LLAMA_ARG_BACKEND_SAMPLING",),
        dest="backend_sampling",
        kind=Switch(),
        default=False,
        status=Inert("llamad samples on the CPU, all slots in parallel"),
    ),
)

FLAGS: tuple[Flag, ...] = (
    *(option_flag(name, GROUP) for name in WITH_FLAG if name not in ELSEWHERE),
    SAMPLER_LETTERS,
    *OTHER_FLAGS,
)
