"""The flags about the context and its key-value cache. Pure data; must not compute."""

from __future__ import annotations

from typing import Literal

from llamad.flags.types.declaration import flag, flags_of
from llamad.flags.types.kinds import ON_OFF_AUTO, Int, OnOffAuto
from llamad.flags.types.option_flags import option_flag

CacheType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]

TITLE = "Context and cache"


class Context:
    """Settings about the context and its key-value cache."""

    n_ctx: int = flag(
        names=("-c", "--ctx-size"),
        kind=Int(low=0),
        default=0,
        help="Context size in tokens. All slots share it, or, with -np and without --kv-unified, it is split evenly"
        " between them; 0: from the model.",
    )
    report_context: int = flag(
        kind=Int(low=0),
        default=0,
        help="Context in tokens that clients of /v1/messages are told of: `usage` and count_tokens grow or shrink in"
        " proportion, so that a client that assumes 200000 compacts in time; 0: true counts.",
    )
    n_batch: int = flag(
        names=("-b", "--batch-size"),
        env=("LLAMA_ARG_BATCH",),
        kind=Int(low=1, high=1 << 20),
        default=2048,
        help="Logical batch size: maximum tokens per step.",
    )
    n_ubatch: int = flag(
        names=("-ub", "--ubatch-size"),
        env=("LLAMA_ARG_UBATCH",),
        kind=Int(low=-1, high=1 << 20),
        default=-1,
        help="Physical batch size: maximum tokens computed at once; 0: --batch-size, -1: 512, or 1024 on a GPU"
        " with memory to spare.",
    )
    context_shift: bool = flag(
        off=("--no-context-shift",),
        default=True,
        help="When the context is full, drop the oldest tokens and continue.",
    )
    grp_attn_n: int = flag(
        names=("-gan", "--grp-attn-n"),
        kind=Int(low=1, high=1 << 16),
        default=1,
        help="Self-extend: tokens that share a position outside the window; 1: off.",
    )
    grp_attn_w: int = flag(
        names=("-gaw", "--grp-attn-w"),
        kind=Int(low=1, high=1 << 24),
        default=512,
        help="Self-extend: window of ungrouped positions, a multiple of --grp-attn-n.",
    )
    kv_unified: bool = flag(
        names=("-kvu", "--kv-unified"),
        off=("-no-kvu", "--no-kv-unified"),
        default=False,
        help="One KV cache for all slots: each can use the whole context, and when they outgrow it the youngest request"
        " waits in host memory (--cache-ram). Many slots are slower. On without -np.",
    )
    kv_unified_per_slot: int = flag(
        kind=Int(low=0),
        default=0,
        help="Maximum context of a slot in tokens; 0: no limit of its own. Without --ctx-size the whole context becomes"
        " so much for each slot.",
    )
    swa_full: bool = flag(
        default=False,
        help="Full-size KV cache for sliding-window layers, so that prefixes can be reused.",
    )
    ctx_checkpoints: int = flag(
        names=("-ctxcp", "--swa-checkpoints", "--ctx-checkpoints"),
        kind=Int(low=0, high=4096),
        default=32,
        help="Maximum checkpoints per slot, from which a prompt that changed at its end is continued on models with"
        " sliding windows (without --swa-full) or recurrent layers; 0: none. At most half of --cache-ram.",
    )
    checkpoint_min_step: int = flag(
        names=("-cms", "--checkpoint-min-step"),
        env=("LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT",),
        kind=Int(low=0, high=(1 << 31) - 1),
        default=8192,
        help="Minimum tokens between checkpoints in the middle of a prompt.",
    )
    flash_attn: OnOffAuto = flag(
        names=("-fa", "--flash-attn"),
        kind=ON_OFF_AUTO,
        default="auto",
        bare="on",
        metavar="on|off|auto",
        help="Flash attention; without a value: on.",
    )
    cache_type_k: CacheType = flag(
        names=("-ctk", "--cache-type-k"),
        default="f16",
        metavar="TYPE",
        help="Data type of the K cache.",
    )
    cache_type_v: CacheType = flag(
        names=("-ctv", "--cache-type-v"),
        default="f16",
        metavar="TYPE",
        help="Data type of the V cache; quantized types need flash attention.",
    )
    kv_offload: bool = flag(
        names=("-kvo", "--kv-offload"),
        off=("-nkvo", "--no-kv-offload"),
        default=True,
        help="Keep the KV cache on the GPU.",
    )


FLAGS = (*flags_of(Context, TITLE), option_flag("n_keep", TITLE, "The default for requests."))
