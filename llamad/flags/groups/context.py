"""Owns the flags about the context and its key-value cache. Pure data; must not compute."""

from __future__ import annotations

from functools import partial

from llamad.flags.types.flag import Flag
from llamad.flags.types.kinds import ON_OFF_AUTO, Choice, Int, Switch
from llamad.flags.types.option_flags import option_flag

flag = partial(Flag, group="Context and cache")

CACHE_TYPES = Choice(("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"))

FLAGS: tuple[Flag, ...] = (
    flag(
        names=("-c", "--ctx-size"),
        env=("LLAMA_ARG_CTX_SIZE",),
        dest="n_ctx",
        kind=Int(low=0),
        default=0,
        help="Context size in tokens. All slots share it, or, with -np and without --kv-unified, it is split evenly"
        " between them; 0: from the model.",
    ),
    flag(
        names=("-b", "--batch-size"),
        env=("LLAMA_ARG_BATCH",),
        dest="n_batch",
        kind=Int(low=1, high=1 << 20),
        default=2048,
        help="Logical batch size: maximum tokens per step.",
    ),
    flag(
        names=("-ub", "--ubatch-size"),
        env=("LLAMA_ARG_UBATCH",),
        dest="n_ubatch",
        kind=Int(low=-1, high=1 << 20),
        default=-1,
        help="Physical batch size: maximum tokens computed at once; 0: --batch-size, -1: 512, or 1024 on a GPU"
        " with memory to spare.",
    ),
    option_flag("n_keep", "Context and cache", "The default for requests."),
    flag(
        names=("--context-shift",),
        off=("--no-context-shift",),
        env=("LLAMA_ARG_CONTEXT_SHIFT",),
        dest="context_shift",
        kind=Switch(),
        default=True,
        help="When the context is full, drop the oldest tokens and continue.",
    ),
    flag(
        names=("-gan", "--grp-attn-n"),
        env=("LLAMA_ARG_GRP_ATTN_N",),
        dest="grp_attn_n",
        kind=Int(low=1, high=1 << 16),
        default=1,
        help="Self-extend: tokens that share a position outside the window; 1: off.",
    ),
    flag(
        names=("-gaw", "--grp-attn-w"),
        env=("LLAMA_ARG_GRP_ATTN_W",),
        dest="grp_attn_w",
        kind=Int(low=1, high=1 << 24),
        default=512,
        help="Self-extend: window of ungrouped positions, a multiple of --grp-attn-n.",
    ),
    flag(
        names=("-kvu", "--kv-unified"),
        off=("-no-kvu", "--no-kv-unified"),
        env=("LLAMA_ARG_KV_UNIFIED",),
        dest="kv_unified",
        kind=Switch(),
        default=False,
        help="One KV cache for all slots: each can use the whole context, and when they outgrow it the youngest request"
        " waits in host memory (--cache-ram). Many slots are slower. On without -np.",
    ),
    flag(
        names=("--kv-unified-per-slot",),
        env=("LLAMA_ARG_KV_UNIFIED_PER_SLOT",),
        dest="kv_unified_per_slot",
        kind=Int(low=0),
        default=0,
        help="Maximum context of a slot in tokens; 0: no limit of its own. Without --ctx-size the whole context becomes"
        " so much for each slot.",
    ),
    flag(
        names=("--swa-full",),
        env=("LLAMA_ARG_SWA_FULL",),
        dest="swa_full",
        kind=Switch(),
        default=False,
        help="Full-size KV cache for sliding-window layers, so that prefixes can be reused.",
    ),
    flag(
        names=("-ctxcp", "--swa-checkpoints", "--ctx-checkpoints"),
        env=("LLAMA_ARG_CTX_CHECKPOINTS",),
        dest="ctx_checkpoints",
        kind=Int(low=0, high=4096),
        default=32,
        help="Maximum checkpoints per slot, from which a prompt that changed at its end is continued on models with"
        " sliding windows (without --swa-full) or recurrent layers; 0: none. At most half of --cache-ram.",
    ),
    flag(
        names=("-cms", "--checkpoint-min-step"),
        env=("LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT",),
        dest="checkpoint_min_step",
        kind=Int(low=0, high=(1 << 31) - 1),
        default=8192,
        help="Minimum tokens between checkpoints in the middle of a prompt.",
    ),
    flag(
        names=("-fa", "--flash-attn"),
        env=("LLAMA_ARG_FLASH_ATTN",),
        dest="flash_attn",
        kind=ON_OFF_AUTO,
        default="auto",
        bare="on",
        metavar="on|off|auto",
        help="Flash attention; without a value: on.",
    ),
    flag(
        names=("-ctk", "--cache-type-k"),
        env=("LLAMA_ARG_CACHE_TYPE_K",),
        dest="cache_type_k",
        kind=CACHE_TYPES,
        default="f16",
        metavar="TYPE",
        help="Data type of the K cache.",
    ),
    flag(
        names=("-ctv", "--cache-type-v"),
        env=("LLAMA_ARG_CACHE_TYPE_V",),
        dest="cache_type_v",
        kind=CACHE_TYPES,
        default="f16",
        metavar="TYPE",
        help="Data type of the V cache; quantized types need flash attention.",
    ),
    flag(
        names=("-kvo", "--kv-offload"),
        off=("-nkvo", "--no-kv-offload"),
        env=("LLAMA_ARG_KV_OFFLOAD",),
        dest="kv_offload",
        kind=Switch(),
        default=True,
        help="Keep the KV cache on the GPU.",
    ),
)
