"""Owns the flags about slots, their queue and their saved states. Pure data; must not compute."""

from __future__ import annotations

from functools import partial

from llamad.flags.types.flag import Flag
from llamad.flags.types.kinds import File, Float, Int, Switch
from llamad.flags.types.option_flags import option_flag
from llamad.flags.types.special import Size

flag = partial(Flag, group="Slots")

FLAGS: tuple[Flag, ...] = (
    flag(
        names=("-np", "--parallel"),
        env=("LLAMA_ARG_N_PARALLEL",),
        dest="n_parallel",
        kind=Int(1, 256, words={"auto": -1, "-1": -1}),
        default=-1,
        help="Number of slots, that is, of requests processed in parallel; -1 or auto: 4 over one KV cache"
        " (--kv-unified).",
    ),
    flag(
        names=("-cb", "--cont-batching"),
        off=("-nocb", "--no-cont-batching"),
        env=("LLAMA_ARG_CONT_BATCHING",),
        dest="cont_batching",
        kind=Switch(),
        default=True,
        help="Continuous batching: admit requests while others run.",
    ),
    flag(
        names=("--slots",),
        off=("--slots-endpoint-disable", "--no-slots"),
        env=("LLAMA_ARG_ENDPOINT_SLOTS",),
        dest="endpoint_slots",
        kind=Switch(),
        default=False,
        help="Enable GET /slots, slot states and sessions; they expose prompts.",
    ),
    flag(
        names=("-sps", "--slot-prompt-similarity"),
        env=("LLAMA_ARG_SLOT_PROMPT_SIMILARITY",),
        dest="slot_prompt_similarity",
        kind=Float(low=0.0, high=1.0),
        default=0.5,
        help="Share of a prompt that a slot must hold to be preferred for it; 0: off, always the least recently used"
        " slot.",
    ),
    option_flag("cache_prompt", "Slots", "The default for requests."),
    option_flag("n_cache_reuse", "Slots", "The default for requests."),
    flag(
        names=("-cram", "--cache-ram"),
        env=("LLAMA_ARG_CACHE_RAM",),
        dest="cache_ram",
        kind=Int(low=-1),
        default=8192,
        help="Host memory in MiB for prompts evicted from slots, at most half of what is free; 0: off, -1: no"
        " limit.",
    ),
    flag(
        names=("--cache-idle-slots",),
        off=("--no-cache-idle-slots",),
        env=("LLAMA_ARG_CACHE_IDLE_SLOTS",),
        dest="cache_idle_slots",
        kind=Switch(),
        default=True,
        help="In a unified KV cache, save an idle slot's prompt to --cache-ram when running requests need its cells;"
        " off: drop it.",
    ),
    flag(
        names=("--share-prefixes",),
        env=("LLAMA_ARG_SHARE_PREFIXES",),
        dest="share_prefixes",
        kind=Switch(),
        default=False,
        help="Share cached prompts, slots and encoded images between API keys; off: each key has its own.",
    ),
    flag(
        names=("-spf", "--system-prompt-file"),
        env=("LLAMA_ARG_SYSTEM_PROMPT_FILE",),
        dest="system_prompt_file",
        kind=File(optional=True),
        default=None,
        help="System prompt before every prompt: a text file, or JSON with prompt, anti_prompt and"
        " assistant_name.",
    ),
    flag(
        names=("--no-system-prompt",),
        env=("LLAMA_ARG_NO_SYSTEM_PROMPT",),
        dest="system_prompt_field",
        kind=Switch(on=False, off=True),
        default=True,
        help="Reject requests that change the system prompt.",
    ),
    flag(
        names=("--system-prompt-shared",),
        env=("LLAMA_ARG_SYSTEM_PROMPT_SHARED",),
        dest="system_prompt_shared",
        kind=Switch(),
        default=False,
        help="Share the system prompt and the adapter scales that requests set between API keys; off: each key has its"
        " own.",
    ),
    flag(
        names=("--slot-save-path",),
        env=("LLAMA_ARG_SLOT_SAVE_PATH",),
        dest="slot_save_path",
        kind=File(optional=True),
        default=None,
        secret=True,
        help="Directory for state files; enables saving slots and sessions to files.",
    ),
    flag(
        names=("--sessions-max-bytes",),
        env=("LLAMA_ARG_SESSIONS_MAX_BYTES",),
        dest="sessions_max_bytes",
        kind=Size(0),
        default=8 * 1024**3,
        help="Maximum memory for all sessions; beyond it a save is a 507. 0: no sessions.",
    ),
    flag(
        names=("--sessions-evict",),
        off=("--no-sessions-evict",),
        env=("LLAMA_ARG_SESSIONS_EVICT",),
        dest="sessions_evict",
        kind=Switch(),
        default=False,
        help="Evict the least recently used sessions when a save needs room, instead of the 507.",
    ),
    flag(
        names=("--queue-max",),
        env=("LLAMA_ARG_QUEUE_MAX",),
        dest="queue_max",
        reload=True,
        kind=Int(1, 1_000_000),
        default=512,
        help="Maximum requests waiting for a slot; beyond it: 429.",
    ),
    flag(
        names=("--step-tokens-max",),
        env=("LLAMA_ARG_STEP_TOKENS_MAX",),
        dest="step_tokens_max",
        kind=Int(low=0),
        default=0,
        help="Maximum tokens per step while slots are decoding; 0: adaptive.",
    ),
    flag(
        names=("--step-trace",),
        env=("LLAMA_ARG_STEP_TRACE",),
        dest="step_trace",
        kind=File(optional=True),
        default=None,
        help="Write a JSON line per engine step to this file.",
    ),
)
