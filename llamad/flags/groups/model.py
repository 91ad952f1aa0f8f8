"""The flags about the model and its loading. Pure data; must not compute."""

from __future__ import annotations

from typing import Literal

from llamad.flags.types.declaration import flag, flags_of
from llamad.flags.types.kinds import File, Int, Many, OnOffAuto, Text
from llamad.flags.types.model_files import Overrides
from llamad.flags.types.values import KvOverride

DEFAULT_MODEL = "models/7B/ggml-model-f16.gguf"  # the path in llama.cpp's documentation


class Loading:
    """Settings about the model and its loading."""

    model: str = flag(
        names=("-m", "--model"),
        kind=File(),
        default=DEFAULT_MODEL,
        help="GGUF file to serve; for a split model, the first part.",
    )
    # The first one is the model's name. If there is none, the model is named by its repository, or by its path.
    aliases: tuple[str, ...] = flag(
        names=("-a", "--alias"),
        kind=Many(Text()),
        default=(),
        metavar="NAME,...",
        repeat=True,
        help="Names of the model, the first one in responses; default: the path. May be repeated.",
    )
    tags: tuple[str, ...] = flag(
        kind=Many(Text()),
        default=(),
        metavar="TAG,...",
        repeat=True,
        help="Tags of the model, for /v1/models. May be repeated.",
    )
    check_tensors: bool = flag(
        default=False,
        help="Check the model's tensors for invalid values while loading.",
    )
    override_kv: tuple[KvOverride, ...] = flag(
        kind=Overrides(),
        default=(),
        repeat=True,
        help="Override a metadata value of the model; TYPE is int, float, bool or str. May be repeated.",
    )
    mmap: bool = flag(
        off=("--no-mmap",),
        default=True,
        help="Memory-map the model file instead of reading it; with --lora only if this flag is given.",
    )
    mlock: bool = flag(
        default=False,
        help="Lock the model in RAM: no swapping, no compression.",
    )
    load_mode: Literal["auto", "none", "mmap", "mlock", "mmap+mlock", "dio"] = flag(
        names=("-lm", "--load-mode"),
        default="auto",
        metavar="MODE",
        help="How to read the model: memory-map it, lock it in RAM, both, with direct I/O, or none of these; auto: as"
        " --mmap and --mlock say.",
    )
    lazy_mode: OnOffAuto = flag(
        names=("-lzm", "--lazy-mode"),
        default="auto",
        metavar="on|off|auto",
        help="Read the rows of some tensors (per-layer embeddings) on demand instead of keeping them in memory; auto:"
        " above 4 GiB.",
    )
    warmup: bool = flag(
        off=("--no-warmup",),
        default=True,
        help="Run the model once before the first request.",
    )
    sleep_idle_seconds: int = flag(
        reload=True,
        kind=Int(low=1, words={"-1": -1}),
        default=-1,
        metavar="SECONDS",
        help="Unload the model after this many seconds without a request, and load it again for the next one; -1:"
        " never.",
    )
    llama_api_only: bool = flag(
        default=False,
        help="Use only llama.cpp's public API, not its internals: no early sampling, padding, filler tokens or"
        " separate prefill, no tokenizer or tensor placement of llamad's own. Slower; for troubleshooting.",
    )


FLAGS = flags_of(Loading, "Model")
