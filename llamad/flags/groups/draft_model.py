"""The flags about draft models: which one, where it is, and how it drafts. Pure data; must not compute."""

from __future__ import annotations

from llamad.flags.groups.context import CacheType
from llamad.flags.groups.cpu import THREADS
from llamad.flags.groups.gpu import ALL_LAYERS
from llamad.flags.types.declaration import flag, flags_of
from llamad.flags.types.flag import Flag, Inert, placeholder
from llamad.flags.types.kinds import File, Float, Int, Many, Switch, Text
from llamad.flags.types.model_files import HubName
from llamad.flags.types.placement import CpuMask, CpuRange, Placements
from llamad.flags.types.values import Placement

TITLE = "Draft model"

_SHARE = Float(low=0.0, high=1.0)
_COUNT = Int(low=0)


class DraftModel:
    """Settings about the draft model. What they do not set is as for the served model."""

    model_draft: str | None = flag(
        names=("--spec-draft-model", "-md", "--model-draft"),
        env=("LLAMA_ARG_SPEC_DRAFT_MODEL", "LLAMA_ARG_MODEL_DRAFT"),
        kind=File(),
        default=None,
        help="GGUF file of a smaller model with the same vocabulary, which drafts tokens that the served one verifies."
        " It is used without --spec-type, too.",
    )
    hf_repo_draft: str | None = flag(
        names=("--spec-draft-hf", "-hfd", "-hfrd", "--hf-repo-draft"),
        env=("LLAMA_ARG_SPEC_DRAFT_HF_REPO", "LLAMA_ARG_HFD_REPO"),
        kind=HubName(),
        default=None,
        help="The same from Hugging Face, as --hf-repo.",
    )
    spec_draft_n_max: int | None = flag(
        names=("--spec-draft-n-max", "--draft", "--draft-n", "--draft-max"),
        env=("LLAMA_ARG_SPEC_DRAFT_N_MAX", "LLAMA_ARG_DRAFT_MAX"),
        kind=_COUNT,
        default=None,
        help="Maximum tokens of its drafts, up to 63; default: as many as pay.",
    )
    spec_draft_n_min: int = flag(
        names=("--spec-draft-n-min", "--draft-n-min", "--draft-min"),
        env=("LLAMA_ARG_SPEC_DRAFT_N_MIN", "LLAMA_ARG_DRAFT_MIN"),
        kind=_COUNT,
        default=0,
        help="Drop its drafts with fewer tokens.",
    )
    spec_draft_p_min: float = flag(
        names=("--spec-draft-p-min", "--draft-p-min"),
        env=("LLAMA_ARG_SPEC_DRAFT_P_MIN", "LLAMA_ARG_DRAFT_P_MIN"),
        kind=_SHARE,
        default=0.0,
        help="A draft ends before the first token with a lower probability, among the 10 likeliest tokens.",
    )
    n_gpu_layers_draft: int = flag(
        names=("--spec-draft-ngl", "-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft"),
        env=("LLAMA_ARG_N_GPU_LAYERS_DRAFT",),
        kind=Int(low=-1, words={"auto": -1, "all": ALL_LAYERS}),
        default=-1,
        help="Its layers to offload to the GPUs; auto, -1: all.",
    )
    devices_draft: tuple[str, ...] = flag(
        names=("--spec-draft-device", "-devd", "--device-draft"),
        kind=Many(Text()),
        default=(),
        metavar="NAME,...",
        help="Its devices, or none; default: those of --device.",
    )
    cache_type_k_draft: CacheType = flag(
        names=("--spec-draft-type-k", "-ctkd", "--cache-type-k-draft"),
        env=("LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K", "LLAMA_ARG_CACHE_TYPE_K_DRAFT"),
        default="f16",
        metavar="TYPE",
        help="Data type of its K cache.",
    )
    cache_type_v_draft: CacheType = flag(
        names=("--spec-draft-type-v", "-ctvd", "--cache-type-v-draft"),
        env=("LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V", "LLAMA_ARG_CACHE_TYPE_V_DRAFT"),
        default="f16",
        metavar="TYPE",
        help="Data type of its V cache; quantized types need flash attention.",
    )
    override_tensor_draft: tuple[Placement, ...] = flag(
        names=("--spec-draft-override-tensor", "-otd", "--override-tensor-draft"),
        kind=Placements(),
        default=(),
        repeat=True,
        help="--override-tensor for its tensors. May be repeated.",
    )
    cpu_moe_draft: bool = flag(
        names=("--spec-draft-cpu-moe", "-cmoed", "--cpu-moe-draft"),
        env=("LLAMA_ARG_SPEC_DRAFT_CPU_MOE", "LLAMA_ARG_CPU_MOE_DRAFT"),
        default=False,
        help="Keep the expert weights of all of its layers in host memory.",
    )
    n_cpu_moe_draft: int = flag(
        names=("--spec-draft-n-cpu-moe", "--spec-draft-ncmoe", "-ncmoed", "--n-cpu-moe-draft"),
        env=("LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE", "LLAMA_ARG_N_CPU_MOE_DRAFT"),
        kind=Int(low=0, high=4096),
        default=0,
        help="Keep the expert weights of its first N layers in host memory.",
    )
    n_threads_draft: int = flag(
        names=("--spec-draft-threads", "-td", "--threads-draft"),
        kind=THREADS,
        default=0,
        help="Its threads for drafting; 0: same as --threads.",
    )
    n_threads_batch_draft: int = flag(
        names=("--spec-draft-threads-batch", "-tbd", "--threads-batch-draft"),
        kind=THREADS,
        default=0,
        help="Its threads for prompts and several slots; 0: same as --threads-draft, or --threads-batch without that.",
    )
    cpu_mask_draft: tuple[int, ...] = flag(
        names=("--spec-draft-cpu-mask", "-Cd", "--cpu-mask-draft"),
        kind=CpuMask(),
        default=(),
        help="CPUs that the threads of --threads-draft may run on, as a mask; those of --cpu-range-draft are added."
        " Without both, those of --threads.",
    )
    cpu_range_draft: tuple[int, ...] = flag(
        names=("--spec-draft-cpu-range", "-Crd", "--cpu-range-draft"),
        kind=CpuRange(),
        default=(),
        help="The same as a range.",
    )
    cpu_strict_draft: int | None = flag(
        names=("--spec-draft-cpu-strict", "--cpu-strict-draft"),
        kind=Int(0, 1),
        default=None,
        help="--cpu-strict of these threads; the same without it.",
    )
    prio_draft: int | None = flag(
        names=("--spec-draft-prio", "--prio-draft"),
        kind=Int(-1, 3),
        default=None,
        help="--prio of these threads; the same without it.",
    )
    poll_draft: int | None = flag(
        names=("--spec-draft-poll", "--poll-draft"),
        kind=Int(0, 100),
        default=None,
        help="--poll of these threads; the same without it.",
    )
    cpu_mask_batch_draft: tuple[int, ...] = flag(
        names=("--spec-draft-cpu-mask-batch", "-Cbd", "--cpu-mask-batch-draft"),
        kind=CpuMask(),
        default=(),
        help="CPUs of --threads-batch-draft; without it and --cpu-range-batch-draft, those of --threads-draft.",
    )
    cpu_range_batch_draft: tuple[int, ...] = flag(
        names=("--spec-draft-cpu-range-batch", "-Crbd", "--cpu-range-batch-draft"),
        kind=CpuRange(),
        default=(),
        help="The same as a range.",
    )
    cpu_strict_batch_draft: int | None = flag(
        names=("--spec-draft-cpu-strict-batch", "--cpu-strict-batch-draft"),
        kind=Int(0, 1),
        default=None,
        help="--cpu-strict of --threads-batch-draft; the same without it.",
    )
    prio_batch_draft: int | None = flag(
        names=("--spec-draft-prio-batch", "--prio-batch-draft"),
        kind=Int(-1, 3),
        default=None,
        help="--prio of --threads-batch-draft; the same without it.",
    )
    poll_batch_draft: int | None = flag(
        names=("--spec-draft-poll-batch", "--poll-batch-draft"),
        kind=Int(0, 100),
        default=None,
        help="--poll of --threads-batch-draft; the same without it.",
    )


# The settings that say which model it is.
NAMED_BY = ("model_draft", "hf_repo_draft")
# The other settings, which need one.
TUNED_BY = tuple(name for name in DraftModel.__annotations__ if name not in NAMED_BY)

OTHER_FLAGS: tuple[Flag, ...] = (
    placeholder(
        "-cd",
        "--ctx-size-draft",
        env=("LLAMA_ARG_CTX_SIZE_DRAFT",),
        kind=_COUNT,
        default=0,
        status=Inert("a draft model has the context of the served one"),
    ),
    placeholder(
        "--spec-draft-p-split",
        "-ps",
        "--p-split",
        "--draft-p-split",
        env=("LLAMA_ARG_SPEC_DRAFT_P_SPLIT", "LLAMA_ARG_DRAFT_P_SPLIT"),
        kind=_SHARE,
        default=0.1,
        status=Inert("it is for trees of drafts, which llama-server does not have either"),
    ),
    placeholder(
        "--spec-draft-backend-sampling",
        off=("--no-spec-draft-backend-sampling",),
        env=("LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING",),
        kind=Switch(),
        default=False,
        status=Inert("it is for heads in the model"),
    ),
)

FLAGS = (*flags_of(DraftModel, TITLE), *OTHER_FLAGS)
