"""The flags about speculative decoding: draft models, n-grams, lookup caches. Pure data; must not compute."""

from __future__ import annotations

from functools import partial
from typing import get_args

from llamad.flags.groups.context import CacheType
from llamad.flags.groups.cpu import THREADS
from llamad.flags.types.flag import Flag, Inert, Later
from llamad.flags.types.kinds import Choice, File, Float, Int, Many, Switch, Text

flag = partial(Flag, status=Inert("llamad has no speculative decoding yet"))
# Flags that enable it; the others only tune it. Lookup caches are speculative decoding, too.
asking = partial(flag, status=Later("speculative decoding"))

CACHE_TYPES = Choice(get_args(CacheType))
SHARE = Float(low=0.0, high=1.0)
COUNT = Int(low=0)

MODEL_FLAGS: tuple[Flag, ...] = (
    asking(
        names=("--spec-draft-model", "-md", "--model-draft"),
        env=("LLAMA_ARG_SPEC_DRAFT_MODEL", "LLAMA_ARG_MODEL_DRAFT"),
        dest="model_draft",
        kind=File(),
    ),
    asking(
        names=("--spec-draft-hf", "-hfd", "-hfrd", "--hf-repo-draft"),
        env=("LLAMA_ARG_SPEC_DRAFT_HF_REPO", "LLAMA_ARG_HFD_REPO"),
        dest="hf_repo_draft",
        kind=Text(),
    ),
    flag(
        names=("--spec-draft-device", "-devd", "--device-draft"),
        dest="device_draft",
        kind=Many(Text()),
        default=(),
    ),
    flag(
        names=("--spec-draft-ngl", "-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft"),
        env=("LLAMA_ARG_N_GPU_LAYERS_DRAFT",),
        dest="n_gpu_layers_draft",
        kind=Int(low=-1, words={"auto": -1, "all": -1}),
        default=-1,
    ),
    flag(
        names=("-cd", "--ctx-size-draft"),
        env=("LLAMA_ARG_CTX_SIZE_DRAFT",),
        dest="ctx_size_draft",
        kind=COUNT,
        default=0,
    ),
    flag(
        names=("--spec-draft-type-k", "-ctkd", "--cache-type-k-draft"),
        env=("LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K", "LLAMA_ARG_CACHE_TYPE_K_DRAFT"),
        dest="cache_type_k_draft",
        kind=CACHE_TYPES,
        default="f16",
    ),
    flag(
        names=("--spec-draft-type-v", "-ctvd", "--cache-type-v-draft"),
        env=("LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V", "LLAMA_ARG_CACHE_TYPE_V_DRAFT"),
        dest="cache_type_v_draft",
        kind=CACHE_TYPES,
        default="f16",
    ),
    flag(
        names=("--spec-draft-override-tensor", "-otd", "--override-tensor-draft"),
        dest="override_tensor_draft",
        kind=Text(),
    ),
    flag(
        names=("--spec-draft-cpu-moe", "-cmoed", "--cpu-moe-draft"),
        env=("LLAMA_ARG_SPEC_DRAFT_CPU_MOE", "LLAMA_ARG_CPU_MOE_DRAFT"),
        dest="cpu_moe_draft",
        kind=Switch(),
        default=False,
    ),
    flag(
        names=("--spec-draft-n-cpu-moe", "--spec-draft-ncmoe", "-ncmoed", "--n-cpu-moe-draft"),
        env=("LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE", "LLAMA_ARG_N_CPU_MOE_DRAFT"),
        dest="n_cpu_moe_draft",
        kind=COUNT,
        default=0,
    ),
)

THREAD_FLAGS: tuple[Flag, ...] = (
    flag(
        names=("--spec-draft-threads", "-td", "--threads-draft"),
        dest="threads_draft",
        kind=THREADS,
        default=0,
    ),
    flag(
        names=("--spec-draft-threads-batch", "-tbd", "--threads-batch-draft"),
        dest="threads_batch_draft",
        kind=THREADS,
        default=0,
    ),
    flag(
        names=("--spec-draft-cpu-mask", "-Cd", "--cpu-mask-draft"),
        dest="cpu_mask_draft",
        kind=Text(),
    ),
    flag(
        names=("--spec-draft-cpu-range", "-Crd", "--cpu-range-draft"),
        dest="cpu_range_draft",
        kind=Text(),
    ),
    flag(
        names=("--spec-draft-cpu-strict", "--cpu-strict-draft"),
        dest="cpu_strict_draft",
        kind=Int(0, 1),
        default=0,
    ),
    flag(names=("--spec-draft-prio", "--prio-draft"), dest="prio_draft", kind=Int(-1, 3), default=0),
    flag(names=("--spec-draft-poll", "--poll-draft"), dest="poll_draft", kind=Int(0, 100), default=50),
    flag(
        names=("--spec-draft-cpu-mask-batch", "-Cbd", "--cpu-mask-batch-draft"),
        dest="cpu_mask_batch_draft",
        kind=Text(),
    ),
    flag(
        names=("--spec-draft-cpu-range-batch", "-Crbd", "--cpu-range-batch-draft"),
        dest="cpu_range_batch_draft",
        kind=Text(),
    ),
    flag(
        names=("--spec-draft-cpu-strict-batch", "--cpu-strict-batch-draft"),
        dest="cpu_strict_batch_draft",
        kind=Int(0, 1),
        default=0,
    ),
    flag(
        names=("--spec-draft-prio-batch", "--prio-batch-draft"),
        dest="prio_batch_draft",
        kind=Int(-1, 3),
        default=0,
    ),
    flag(
        names=("--spec-draft-poll-batch", "--poll-batch-draft"),
        dest="poll_batch_draft",
        kind=Int(0, 100),
        default=50,
    ),
)

# The old and the new defaults are neutral.
DRAFT_FLAGS: tuple[Flag, ...] = (
    asking(
        names=("--spec-type",), env=("LLAMA_ARG_SPEC_TYPE",), dest="spec_type", kind=Text(), default="none"
    ),
    asking(names=("--spec-default",), dest="spec_default", kind=Switch(), default=False),
    flag(
        names=("--spec-draft-n-max", "--draft-max", "--draft-n", "--draft"),
        env=("LLAMA_ARG_SPEC_DRAFT_N_MAX", "LLAMA_ARG_DRAFT_MAX"),
        dest="draft_max",
        kind=COUNT,
        default=0,
        neutral=(3, 5, 16),
    ),
    flag(
        names=("--spec-draft-n-min", "--draft-n-min", "--draft-min"),
        env=("LLAMA_ARG_SPEC_DRAFT_N_MIN", "LLAMA_ARG_DRAFT_MIN"),
        dest="draft_min",
        kind=COUNT,
        default=0,
    ),
    flag(
        names=("--spec-draft-p-split", "--draft-p-split", "-ps", "--p-split"),
        env=("LLAMA_ARG_SPEC_DRAFT_P_SPLIT", "LLAMA_ARG_DRAFT_P_SPLIT"),
        dest="draft_p_split",
        kind=SHARE,
        default=0.1,
    ),
    flag(
        names=("--spec-draft-p-min", "--draft-p-min"),
        env=("LLAMA_ARG_SPEC_DRAFT_P_MIN", "LLAMA_ARG_DRAFT_P_MIN"),
        dest="draft_p_min",
        kind=SHARE,
        default=0.0,
        neutral=(0.75, 0.8),
    ),
    flag(
        names=("--spec-draft-backend-sampling",),
        off=("--no-spec-draft-backend-sampling",),
        env=("LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING",),
        dest="draft_backend_sampling",
        kind=Switch(),
        default=False,
    ),
    flag(
        names=("--spec-synth-len",),
        env=("LLAMA_ARG_SPEC_SYNTH_LEN",),
        dest="spec_synth_len",
        kind=Text(),
    ),
    flag(
        names=("--spec-synth-rates",),
        env=("LLAMA_ARG_SPEC_SYNTH_RATES",),
        dest="spec_synth_rates",
        kind=Text(),
    ),
    asking(names=("-lcs", "--lookup-cache-static"), dest="lookup_cache_static", kind=File()),
    asking(names=("-lcd", "--lookup-cache-dynamic"), dest="lookup_cache_dynamic", kind=File()),
)

_NGRAM = (
    "--spec-ngram-mod-n-min",
    "--spec-ngram-mod-n-max",
    "--spec-ngram-mod-n-match",
    *(
        f"--spec-ngram-{method}-{number}"
        for method in ("simple", "map-k", "map-k4v")
        for number in ("size-n", "size-m", "min-hits")
    ),
    "--spec-ngram-size-n",
    "--spec-ngram-size-m",
    "--spec-ngram-min-hits",
)

NGRAM_FLAGS: tuple[Flag, ...] = tuple(
    flag(names=(name,), dest=name.strip("-").replace("-", "_"), kind=COUNT) for name in _NGRAM
)

FLAGS: tuple[Flag, ...] = MODEL_FLAGS + THREAD_FLAGS + DRAFT_FLAGS + NGRAM_FLAGS
