"""Owns the flags that set how tokens are chosen when a request does not say. Pure data; must not compute."""

from __future__ import annotations

from functools import partial

from llamad.flags.types.flag import Flag, Later
from llamad.flags.types.kinds import Float, Int, Many, Switch, Text
from llamad.flags.types.special import Bias, SamplerLetters, SamplerNames
from llamad.options.samplers import DEFAULT_ORDER

flag = partial(Flag, group="Sampling defaults")

SHARE = Float(low=0.0, high=1.0)
ADAPTIVE = Later("adaptive sampling")

CHAIN_FLAGS: tuple[Flag, ...] = (
    flag(
        names=("-s", "--seed"),
        env=("LLAMA_ARG_SEED",),
        dest="seed",
        kind=Int(high=2**32 - 1),
        default=-1,
        help="Seed of the random numbers; negative draws a new one for each request.",
    ),
    flag(
        names=("--samplers",),
        env=("LLAMA_ARG_SAMPLERS",),
        dest="samplers",
        kind=SamplerNames(),
        default=DEFAULT_ORDER,
        metavar="A;B;...",
        help="The samplers in the order of use. Penalties come first unless the list names them.",
    ),
    flag(
        names=("--sampler-seq", "--sampling-seq"),
        env=("LLAMA_ARG_SAMPLING_SEQ",),
        dest="samplers",
        kind=SamplerLetters(),
        default=DEFAULT_ORDER,
        help="The same, a letter each: e penalties, d dry, s top_n_sigma, k top_k, f tfs_z, y typ_p, p top_p, "
        "m min_p, x xtc, t temperature.",
    ),
    flag(
        names=("--temperature", "--temp"),
        env=("LLAMA_ARG_TEMPERATURE",),
        dest="temperature",
        kind=Float(),
        default=0.8,
        help="Temperature; 0 or less always takes the likeliest token.",
    ),
    flag(
        names=("--dynatemp-range",),
        env=("LLAMA_ARG_DYNATEMP_RANGE",),
        dest="dynatemp_range",
        kind=Float(low=0.0),
        default=0.0,
        help="Let the temperature move this far up and down with the entropy; 0 is off.",
    ),
    flag(
        names=("--dynatemp-exp",),
        env=("LLAMA_ARG_DYNATEMP_EXP",),
        dest="dynatemp_exponent",
        kind=Float(),
        default=1.0,
        help="Exponent of the moving temperature.",
    ),
    flag(
        names=("--top-k",),
        env=("LLAMA_ARG_TOP_K",),
        dest="top_k",
        kind=Int(),
        default=40,
        help="Choose among the K likeliest tokens; 0 or less is off.",
    ),
    flag(
        names=("--top-p",),
        env=("LLAMA_ARG_TOP_P",),
        dest="top_p",
        kind=SHARE,
        default=0.95,
        help="Choose among the likeliest tokens that together have this probability; 1 is off.",
    ),
    flag(
        names=("--min-p",),
        env=("LLAMA_ARG_MIN_P",),
        dest="min_p",
        kind=SHARE,
        default=0.05,
        help="Drop tokens below this share of the likeliest token's probability; 0 is off.",
    ),
    flag(
        names=("--top-nsigma", "--top-n-sigma"),
        env=("LLAMA_ARG_TOP_N_SIGMA",),
        dest="top_n_sigma",
        kind=Float(),
        default=-1.0,
        help="Drop tokens more than N standard deviations below the best; negative is off.",
    ),
    flag(
        names=("--typical-p", "--typical"),
        env=("LLAMA_ARG_TYPICAL",),
        dest="typical_p",
        kind=SHARE,
        default=1.0,
        help="Locally typical sampling; 1 is off.",
    ),
    flag(
        names=("--tfs",),
        env=("LLAMA_ARG_TFS",),
        dest="tfs_z",
        kind=SHARE,
        default=1.0,
        help="Tail free sampling; 1 is off.",
    ),
    flag(
        names=("--xtc-probability",),
        env=("LLAMA_ARG_XTC_PROBABILITY",),
        dest="xtc_probability",
        kind=SHARE,
        default=0.0,
        help="How often XTC drops the likeliest tokens; 0 is off.",
    ),
    flag(
        names=("--xtc-threshold",),
        env=("LLAMA_ARG_XTC_THRESHOLD",),
        dest="xtc_threshold",
        kind=SHARE,
        default=0.1,
        help="Probability from which XTC counts a token as likely; above 0.5 is off.",
    ),
    flag(
        names=("--mirostat",),
        env=("LLAMA_ARG_MIROSTAT",),
        dest="mirostat",
        kind=Int(0, 2),
        default=0,
        help="Mirostat version 1 or 2 in place of the other samplers; 0 is off.",
    ),
    flag(
        names=("--mirostat-lr",),
        env=("LLAMA_ARG_MIROSTAT_LR",),
        dest="mirostat_eta",
        kind=Float(low=0.0),
        default=0.1,
        help="Mirostat's learning rate.",
    ),
    flag(
        names=("--mirostat-ent",),
        env=("LLAMA_ARG_MIROSTAT_ENT",),
        dest="mirostat_tau",
        kind=Float(low=0.0),
        default=5.0,
        help="Mirostat's target entropy.",
    ),
    flag(
        names=("--min-keep",),
        env=("LLAMA_ARG_MIN_KEEP",),
        dest="min_keep",
        kind=Int(low=0),
        default=0,
        help="Samplers leave at least this many tokens.",
    ),
)

PENALTY_FLAGS: tuple[Flag, ...] = (
    flag(
        names=("--repeat-last-n",),
        env=("LLAMA_ARG_REPEAT_LAST_N",),
        dest="repeat_last_n",
        kind=Int(low=-1),
        default=64,
        help="How many tokens back the penalties look; 0 is off, -1 is the context.",
    ),
    flag(
        names=("--repeat-penalty",),
        env=("LLAMA_ARG_REPEAT_PENALTY",),
        dest="repeat_penalty",
        kind=Float(above=0.0),
        default=1.0,
        help="Penalty of tokens that occurred; 1 is off.",
    ),
    flag(
        names=("--presence-penalty",),
        env=("LLAMA_ARG_PRESENCE_PENALTY",),
        dest="presence_penalty",
        kind=Float(),
        default=0.0,
        help="Subtracted once from tokens that occurred; 0 is off.",
    ),
    flag(
        names=("--frequency-penalty",),
        env=("LLAMA_ARG_FREQUENCY_PENALTY",),
        dest="frequency_penalty",
        kind=Float(),
        default=0.0,
        help="Subtracted for each time a token occurred; 0 is off.",
    ),
    flag(
        names=("--penalize-nl",),
        off=("--no-penalize-nl",),
        env=("LLAMA_ARG_PENALIZE_NL",),
        dest="penalize_nl",
        kind=Switch(),
        default=False,
        help="Let the penalties touch the line end too.",
    ),
    flag(
        names=("--dry-multiplier",),
        env=("LLAMA_ARG_DRY_MULTIPLIER",),
        dest="dry_multiplier",
        kind=Float(low=0.0),
        default=0.0,
        help="Strength of the DRY penalty on repeated sequences; 0 is off.",
    ),
    flag(
        names=("--dry-base",),
        env=("LLAMA_ARG_DRY_BASE",),
        dest="dry_base",
        kind=Float(low=1.0),
        default=1.75,
        help="How fast DRY grows with the length of a repetition.",
    ),
    flag(
        names=("--dry-allowed-length",),
        env=("LLAMA_ARG_DRY_ALLOWED_LENGTH",),
        dest="dry_allowed_length",
        kind=Int(low=0),
        default=2,
        help="Length of repetition that DRY allows.",
    ),
    flag(
        names=("--dry-penalty-last-n",),
        env=("LLAMA_ARG_DRY_PENALTY_LAST_N",),
        dest="dry_penalty_last_n",
        kind=Int(low=-1),
        default=-1,
        help="How many tokens back DRY looks; 0 is off, -1 is the context.",
    ),
    flag(
        names=("--dry-sequence-breaker",),
        env=("LLAMA_ARG_DRY_SEQUENCE_BREAKER",),
        dest="dry_sequence_breakers",
        kind=Many(Text(), cut="", none="none"),
        default=("\n", ":", '"', "*"),
        metavar="TEXT",
        repeat=True,
        escapes=True,
        help="A text that ends a repetition, in place of the default ones; none for no text. May be repeated.",
    ),
    flag(
        names=("-l", "--logit-bias"),
        env=("LLAMA_ARG_LOGIT_BIAS",),
        dest="logit_bias",
        kind=Many(Bias()),
        default=(),
        metavar="TOKEN+BIAS",
        repeat=True,
        help="Make a token likelier (15043+1), less likely (15043-1) or impossible (15043-inf). May be repeated.",
    ),
    flag(
        names=("--ignore-eos",),
        env=("LLAMA_ARG_IGNORE_EOS",),
        dest="ignore_eos",
        kind=Switch(),
        default=False,
        help="Never choose an end-of-text token.",
    ),
)

LATER_FLAGS: tuple[Flag, ...] = (
    flag(names=("--adaptive-target",), dest="adaptive_target", kind=Float(), default=-1.0, status=ADAPTIVE),
    flag(names=("--adaptive-decay",), dest="adaptive_decay", kind=SHARE, default=0.9, status=ADAPTIVE),
    flag(
        names=("-bs", "--backend-sampling"),
        env=("LLAMA_ARG_BACKEND_SAMPLING",),
        dest="backend_sampling",
        kind=Switch(),
        default=False,
        status=Later("sampling on the GPU"),
    ),
)

FLAGS: tuple[Flag, ...] = CHAIN_FLAGS + PENALTY_FLAGS + LATER_FLAGS
