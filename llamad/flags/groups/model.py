"""Owns the flags about the model and its loading. Pure data; must not compute."""

from __future__ import annotations

from functools import partial

from llamad.flags.types.flag import Flag, Inert, Later
from llamad.flags.types.kinds import Choice, File, Int, Many, Switch, Text
from llamad.flags.types.special import Overrides

flag = partial(Flag, group="Model")

DEFAULT_MODEL = "models/7B/ggml-model-f16.gguf"  # where llama.cpp's documents put one

SEVERAL_MODELS = Later("several models")
ONE_MODEL = Inert("llamad serves one model, and keeps it loaded")

READY_FLAGS: tuple[Flag, ...] = (
    flag(
        names=("-m", "--model"),
        env=("LLAMA_ARG_MODEL",),
        dest="model",
        kind=File(),
        default=DEFAULT_MODEL,
        help="GGUF file to serve; for a split model, the first part.",
    ),
    flag(
        names=("-a", "--alias"),
        env=("LLAMA_ARG_ALIAS",),
        dest="aliases",
        kind=Many(Text()),
        default=(),
        metavar="NAME,...",
        repeat=True,
        help="Names of the model, the first one in responses; default: the path. May be repeated.",
    ),
    flag(
        names=("--tags",),
        env=("LLAMA_ARG_TAGS",),
        dest="tags",
        kind=Many(Text()),
        default=(),
        metavar="TAG,...",
        repeat=True,
        help="Tags of the model, for /v1/models. May be repeated.",
    ),
    flag(
        names=("--check-tensors",),
        env=("LLAMA_ARG_CHECK_TENSORS",),
        dest="check_tensors",
        kind=Switch(),
        default=False,
        help="Check the model's tensors for invalid values while loading.",
    ),
    flag(
        names=("--override-kv",),
        env=("LLAMA_ARG_OVERRIDE_KV",),
        dest="override_kv",
        kind=Overrides(),
        default=(),
        repeat=True,
        help="Override a metadata value of the model; TYPE is int, float, bool or str. May be repeated.",
    ),
    flag(
        names=("--mmap",),
        off=("--no-mmap",),
        env=("LLAMA_ARG_MMAP",),
        dest="mmap",
        kind=Switch(),
        default=True,
        help="Memory-map the model file instead of reading it; with --lora only if this flag is given.",
    ),
    flag(
        names=("--mlock",),
        env=("LLAMA_ARG_MLOCK",),
        dest="mlock",
        kind=Switch(),
        default=False,
        help="Lock the model in RAM: no swapping, no compression.",
    ),
    flag(
        names=("-lm", "--load-mode"),
        env=("LLAMA_ARG_LOAD_MODE",),
        dest="load_mode",
        kind=Choice(("auto", "none", "mmap", "mlock", "mmap+mlock", "dio")),
        default="auto",
        metavar="MODE",
        help="How to read the model: memory-map it, lock it in RAM, both, with direct I/O, or none of these; auto: as"
        " --mmap and --mlock say.",
    ),
    flag(
        names=("-lzm", "--lazy-mode"),
        env=("LLAMA_ARG_LAZY_MODE",),
        dest="lazy_mode",
        kind=Choice(("on", "off", "auto")),
        default="auto",
        metavar="on|off|auto",
        help="Read the rows of some tensors (per-layer embeddings) on demand instead of keeping them in memory; auto:"
        " above 4 GiB.",
    ),
    flag(
        names=("--warmup",),
        off=("--no-warmup",),
        env=("LLAMA_ARG_WARMUP",),
        dest="warmup",
        kind=Switch(),
        default=True,
        help="Run the model once before the first request.",
    ),
)

OTHER_FLAGS: tuple[Flag, ...] = (
    flag(
        names=("--models-dir",),
        env=("LLAMA_ARG_MODELS_DIR",),
        dest="models_dir",
        kind=File(),
        default=None,
        status=SEVERAL_MODELS,
    ),
    flag(
        names=("--models-preset",),
        env=("LLAMA_ARG_MODELS_PRESET",),
        dest="models_preset",
        kind=File(),
        default=None,
        status=SEVERAL_MODELS,
    ),
    flag(
        names=("--models-max",),
        env=("LLAMA_ARG_MODELS_MAX",),
        dest="models_max",
        kind=Int(low=0),
        default=1,
        status=ONE_MODEL,
    ),
    flag(
        names=("--models-autoload",),
        off=("--no-models-autoload",),
        env=("LLAMA_ARG_MODELS_AUTOLOAD",),
        dest="models_autoload",
        kind=Switch(),
        default=False,
        status=ONE_MODEL,
    ),
)

FLAGS: tuple[Flag, ...] = READY_FLAGS + OTHER_FLAGS
