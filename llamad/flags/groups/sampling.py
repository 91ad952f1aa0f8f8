"""The flags that set the sampling defaults: those of the table of options, and a few without an option.
Pure data; must not compute."""

from __future__ import annotations

from llamad.flags.types.declaration import flag, flags_of
from llamad.flags.types.flag import Flag, Inert, placeholder
from llamad.flags.types.kinds import Switch
from llamad.flags.types.option_flags import option_flag
from llamad.flags.types.sampling import SamplerLetters
from llamad.options.sampler_names import LETTERS
from llamad.options.table import FIELDS, WITH_FLAG

TITLE = "Sampling defaults"


class Sampling:
    """Settings about generated text that are not options of a request."""

    special: bool = flag(
        names=("-sp", "--special"),
        default=False,
        help="Include special tokens in the generated text.",
    )
    # The parser has already applied it to the options.
    escape: bool = flag(
        names=("-e", "--escape"),
        off=("--no-escape",),
        default=True,
        help=r"Process escapes (\n, \t, \xHH, ...) in --dry-sequence-breaker.",
    )


# In the groups of slots, context and limits.
ELSEWHERE = ("cache_prompt", "n_cache_reuse", "n_keep", "n_predict")

SAMPLER_LETTERS = Flag(
    group=TITLE,
    names=("--sampler-seq", "--sampling-seq"),
    env=("LLAMA_ARG_SAMPLING_SEQ",),
    dest="samplers",
    kind=SamplerLetters(),
    default=FIELDS["samplers"].default,
    help=f"The samplers, one letter each: {', '.join(' '.join(pair) for pair in LETTERS.items())}.",
)

OTHER_FLAGS: tuple[Flag, ...] = (
    placeholder(
        "-bs",
        "--backend-sampling",
        env=("LLAMA_ARG_BACKEND_SAMPLING",),
        kind=Switch(),
        default=False,
        status=Inert("llamad samples on the CPU, all slots in parallel"),
    ),
)

FLAGS = (
    *(option_flag(name, TITLE) for name in WITH_FLAG if name not in ELSEWHERE),
    SAMPLER_LETTERS,
    *flags_of(Sampling, TITLE),
    *OTHER_FLAGS,
)
