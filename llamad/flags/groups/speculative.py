"""The flags about speculation: drafts from text, draft models, lookup caches. Pure data; must not compute."""

from __future__ import annotations

from functools import partial
from typing import Literal, get_args

from llamad.flags.groups.context import CacheType
from llamad.flags.groups.cpu import THREADS
from llamad.flags.types.declaration import flag, flags_of
from llamad.flags.types.flag import Flag, Inert, Later, Preset, placeholder
from llamad.flags.types.kinds import Choice, File, Float, Int, Many, Switch, Text
from llamad.flags.types.speculation import SpecType, SpecTypes

TITLE = "Speculation"
DRAFT_MAX = 63  # tokens that a step can verify

_SIZE = Int(1, 1024)
_LENGTH = Int(0, 1024)
_HITS = Int(low=1)


class Speculation:
    """Settings about drafts from text."""

    spec: Literal["off", "auto"] = flag(
        default="off",
        metavar="off|auto",
        help="auto: draft the next tokens from what followed the same text before, in the prompt, the answer and"
        " earlier answers of the same API key, and verify several in one step, as many as pay.",
    )
    spec_types: tuple[str, ...] = flag(
        names=("--spec-type",),
        kind=SpecTypes(SpecType(), none="none"),
        default=(),
        repeat=True,
        metavar="TYPES",
        help="Draft from text as llama-server's types do: ngram-simple, ngram-map-k, ngram-map-k4v, ngram-mod,"
        " ngram-cache, separated by commas and tried in this order; none: no type. May be repeated.",
    )
    spec_fixed: int | None = flag(
        kind=Int(0, DRAFT_MAX),
        default=None,
        help="Verify this many drafted tokens in every step that has a draft, instead of as many as pay, which depends"
        " on time.",
    )
    spec_ngram_mod_n_match: int = flag(
        kind=_SIZE,
        default=24,
        help="ngram-mod: tokens at the end of the text that must have occurred before.",
    )
    spec_ngram_mod_n_min: int = flag(
        kind=_LENGTH,
        default=48,
        help="ngram-mod: minimum length of a draft.",
    )
    spec_ngram_mod_n_max: int = flag(
        kind=_LENGTH,
        default=64,
        help="ngram-mod: maximum length of a draft.",
    )
    spec_ngram_simple_size_n: int = flag(
        kind=_SIZE,
        default=12,
        help="ngram-simple: tokens at the end of the text that must have occurred before.",
    )
    spec_ngram_simple_size_m: int = flag(
        kind=_SIZE,
        default=48,
        help="ngram-simple: maximum length of a draft.",
    )
    spec_ngram_map_k_size_n: int = flag(
        kind=_SIZE,
        default=12,
        help="ngram-map-k: tokens at the end of the text that must have occurred before.",
    )
    spec_ngram_map_k_size_m: int = flag(
        kind=_SIZE,
        default=48,
        help="ngram-map-k: maximum length of a draft.",
    )
    spec_ngram_map_k4v_size_n: int = flag(
        kind=_SIZE,
        default=12,
        help="ngram-map-k4v: tokens at the end of the text that must have occurred before.",
    )
    spec_ngram_map_k4v_size_m: int = flag(
        kind=_SIZE,
        default=48,
        help="ngram-map-k4v: maximum length of a draft.",
    )
    spec_ngram_map_k4v_min_hits: int = flag(
        kind=_HITS,
        default=1,
        help="ngram-map-k4v: how often they must have occurred.",
    )
    lookup_cache_static: str | None = flag(
        names=("-lcs", "--lookup-cache-static"),
        kind=File(),
        default=None,
        help="Draft from this file of n-grams, which llama-lookup-create has made; without --spec auto it implies"
        " --spec-type ngram-cache.",
    )
    lookup_cache_dynamic: str | None = flag(
        names=("-lcd", "--lookup-cache-dynamic"),
        kind=File(),
        default=None,
        help="The same with a file that learns the n-grams of all answers; it is made if it is missing. With API keys"
        " it needs --share-prefixes.",
    )
    # These flags set several settings (OF_ALL_TYPES).
    spec_ngram_size_n: int | None = flag(
        kind=_SIZE,
        default=None,
        help="All types: tokens at the end of the text that must have occurred before, unless the type's own flag is"
        " given.",
    )
    spec_ngram_size_m: int | None = flag(
        kind=_SIZE,
        default=None,
        help="ngram-simple, ngram-map-k and ngram-map-k4v: maximum length of a draft, unless the type's own flag is"
        " given.",
    )
    spec_ngram_min_hits: int | None = flag(
        kind=_HITS,
        default=None,
        help="The same as --spec-ngram-map-k4v-min-hits, if that is not given.",
    )


# The settings that a flag of all types sets.
OF_ALL_TYPES = {
    "spec_ngram_size_n": (
        "spec_ngram_mod_n_match",
        "spec_ngram_simple_size_n",
        "spec_ngram_map_k_size_n",
        "spec_ngram_map_k4v_size_n",
    ),
    "spec_ngram_size_m": (
        "spec_ngram_simple_size_m",
        "spec_ngram_map_k_size_m",
        "spec_ngram_map_k4v_size_m",
    ),
    "spec_ngram_min_hits": ("spec_ngram_map_k4v_min_hits",),
}

SPEC_DEFAULT = Flag(
    group=TITLE,
    names=("--spec-default",),
    dest="spec_default",
    kind=Preset(
        tuple(
            "--spec-type ngram-mod --spec-ngram-mod-n-match 24 --spec-ngram-mod-n-min 48"
            " --spec-ngram-mod-n-max 64".split()
        )
    ),
    default=False,
    help="As in llama-server: --spec-type ngram-mod with a match of 24 tokens and drafts of 48 to 64.",
)

tuning = partial(Flag, status=Inert("it is about draft models, which llamad does not have yet"))
needing = partial(Flag, status=Later("draft models"))

CACHE_TYPES = Choice(get_args(CacheType))
SHARE = Float(low=0.0, high=1.0)
COUNT = Int(low=0)

MODEL_FLAGS: tuple[Flag, ...] = (
    needing(
        names=("--spec-draft-model", "-md", "--model-draft"),
        env=("LLAMA_ARG_SPEC_DRAFT_MODEL", "LLAMA_ARG_MODEL_DRAFT"),
        dest="model_draft",
        kind=File(),
    ),
    needing(
        names=("--spec-draft-hf", "-hfd", "-hfrd", "--hf-repo-draft"),
        env=("LLAMA_ARG_SPEC_DRAFT_HF_REPO", "LLAMA_ARG_HFD_REPO"),
        dest="hf_repo_draft",
        kind=Text(),
    ),
    tuning(
        names=("--spec-draft-device", "-devd", "--device-draft"),
        dest="device_draft",
        kind=Many(Text()),
        default=(),
    ),
    tuning(
        names=("--spec-draft-ngl", "-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft"),
        env=("LLAMA_ARG_N_GPU_LAYERS_DRAFT",),
        dest="n_gpu_layers_draft",
        kind=Int(low=-1, words={"auto": -1, "all": -1}),
        default=-1,
    ),
    tuning(
        names=("-cd", "--ctx-size-draft"),
        env=("LLAMA_ARG_CTX_SIZE_DRAFT",),
        dest="ctx_size_draft",
        kind=COUNT,
        default=0,
    ),
    tuning(
        names=("--spec-draft-type-k", "-ctkd", "--cache-type-k-draft"),
        env=("LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K", "LLAMA_ARG_CACHE_TYPE_K_DRAFT"),
        dest="cache_type_k_draft",
        kind=CACHE_TYPES,
        default="f16",
    ),
    tuning(
        names=("--spec-draft-type-v", "-ctvd", "--cache-type-v-draft"),
        env=("LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V", "LLAMA_ARG_CACHE_TYPE_V_DRAFT"),
        dest="cache_type_v_draft",
        kind=CACHE_TYPES,
        default="f16",
    ),
    tuning(
        names=("--spec-draft-override-tensor", "-otd", "--override-tensor-draft"),
        dest="override_tensor_draft",
        kind=Text(),
    ),
    tuning(
        names=("--spec-draft-cpu-moe", "-cmoed", "--cpu-moe-draft"),
        env=("LLAMA_ARG_SPEC_DRAFT_CPU_MOE", "LLAMA_ARG_CPU_MOE_DRAFT"),
        dest="cpu_moe_draft",
        kind=Switch(),
        default=False,
    ),
    tuning(
        names=("--spec-draft-n-cpu-moe", "--spec-draft-ncmoe", "-ncmoed", "--n-cpu-moe-draft"),
        env=("LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE", "LLAMA_ARG_N_CPU_MOE_DRAFT"),
        dest="n_cpu_moe_draft",
        kind=COUNT,
        default=0,
    ),
)

THREAD_FLAGS: tuple[Flag, ...] = (
    tuning(
        names=("--spec-draft-threads", "-td", "--threads-draft"),
        dest="threads_draft",
        kind=THREADS,
        default=0,
    ),
    tuning(
        names=("--spec-draft-threads-batch", "-tbd", "--threads-batch-draft"),
        dest="threads_batch_draft",
        kind=THREADS,
        default=0,
    ),
    tuning(
        names=("--spec-draft-cpu-mask", "-Cd", "--cpu-mask-draft"),
        dest="cpu_mask_draft",
        kind=Text(),
    ),
    tuning(
        names=("--spec-draft-cpu-range", "-Crd", "--cpu-range-draft"),
        dest="cpu_range_draft",
        kind=Text(),
    ),
    tuning(
        names=("--spec-draft-cpu-strict", "--cpu-strict-draft"),
        dest="cpu_strict_draft",
        kind=Int(0, 1),
        default=0,
    ),
    tuning(names=("--spec-draft-prio", "--prio-draft"), dest="prio_draft", kind=Int(-1, 3), default=0),
    tuning(names=("--spec-draft-poll", "--poll-draft"), dest="poll_draft", kind=Int(0, 100), default=50),
    tuning(
        names=("--spec-draft-cpu-mask-batch", "-Cbd", "--cpu-mask-batch-draft"),
        dest="cpu_mask_batch_draft",
        kind=Text(),
    ),
    tuning(
        names=("--spec-draft-cpu-range-batch", "-Crbd", "--cpu-range-batch-draft"),
        dest="cpu_range_batch_draft",
        kind=Text(),
    ),
    tuning(
        names=("--spec-draft-cpu-strict-batch", "--cpu-strict-batch-draft"),
        dest="cpu_strict_batch_draft",
        kind=Int(0, 1),
        default=0,
    ),
    tuning(
        names=("--spec-draft-prio-batch", "--prio-batch-draft"),
        dest="prio_batch_draft",
        kind=Int(-1, 3),
        default=0,
    ),
    tuning(
        names=("--spec-draft-poll-batch", "--poll-batch-draft"),
        dest="poll_batch_draft",
        kind=Int(0, 100),
        default=50,
    ),
)

# The old and the new defaults are neutral.
DRAFT_FLAGS: tuple[Flag, ...] = (
    tuning(
        names=("--spec-draft-n-max", "--draft-max", "--draft-n", "--draft"),
        env=("LLAMA_ARG_SPEC_DRAFT_N_MAX", "LLAMA_ARG_DRAFT_MAX"),
        dest="draft_max",
        kind=COUNT,
        default=0,
        neutral=(3, 5, 16),
    ),
    tuning(
        names=("--spec-draft-n-min", "--draft-n-min", "--draft-min"),
        env=("LLAMA_ARG_SPEC_DRAFT_N_MIN", "LLAMA_ARG_DRAFT_MIN"),
        dest="draft_min",
        kind=COUNT,
        default=0,
    ),
    tuning(
        names=("--spec-draft-p-split", "--draft-p-split", "-ps", "--p-split"),
        env=("LLAMA_ARG_SPEC_DRAFT_P_SPLIT", "LLAMA_ARG_DRAFT_P_SPLIT"),
        dest="draft_p_split",
        kind=SHARE,
        default=0.1,
    ),
    tuning(
        names=("--spec-draft-p-min", "--draft-p-min"),
        env=("LLAMA_ARG_SPEC_DRAFT_P_MIN", "LLAMA_ARG_DRAFT_P_MIN"),
        dest="draft_p_min",
        kind=SHARE,
        default=0.0,
        neutral=(0.75, 0.8),
    ),
    tuning(
        names=("--spec-draft-backend-sampling",),
        off=("--no-spec-draft-backend-sampling",),
        env=("LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING",),
        dest="draft_backend_sampling",
        kind=Switch(),
        default=False,
    ),
)

_SYNTHETIC = Inert("llamad does not pretend that drafts were right, because the text would be wrong")
_UNUSED = Inert("llama-server does not use it either")

OTHER_FLAGS: tuple[Flag, ...] = (
    *(
        placeholder(
            f"--spec-synth-{name}",
            env=(f"LLAMA_ARG_SPEC_SYNTH_{name.upper()}",),
            kind=Text(),
            status=_SYNTHETIC,
        )
        for name in ("len", "rates")
    ),
    *(
        placeholder(f"--spec-ngram-{name}-min-hits", kind=_HITS, default=1, status=_UNUSED)
        for name in ("simple", "map-k")
    ),
)

FLAGS: tuple[Flag, ...] = (
    *flags_of(Speculation, TITLE),
    SPEC_DEFAULT,
    *MODEL_FLAGS,
    *THREAD_FLAGS,
    *DRAFT_FLAGS,
    *OTHER_FLAGS,
)
