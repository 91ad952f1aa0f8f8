"""The flags about slots, their queue and their saved states. Pure data; must not compute."""

from __future__ import annotations

from llamad.flags.types.declaration import flag, flags_of
from llamad.flags.types.kinds import File, Float, Int, Size, Switch
from llamad.flags.types.option_flags import option_flag

TITLE = "Slots"


class Slots:
    """Settings about slots, their queue and their saved states."""

    n_parallel: int = flag(
        names=("-np", "--parallel"),
        env=("LLAMA_ARG_N_PARALLEL",),
        kind=Int(1, 256, words={"auto": -1, "-1": -1}),
        default=-1,
        help="Number of slots, that is, of requests processed in parallel; -1 or auto: 4 over one KV cache"
        " (--kv-unified).",
    )
    cont_batching: bool = flag(
        names=("-cb", "--cont-batching"),
        off=("-nocb", "--no-cont-batching"),
        env=("LLAMA_ARG_CONT_BATCHING",),
        default=True,
        help="Continuous batching: admit requests while others run.",
    )
    slot_prompt_similarity: float = flag(
        names=("-sps", "--slot-prompt-similarity"),
        env=("LLAMA_ARG_SLOT_PROMPT_SIMILARITY",),
        kind=Float(low=0.0, high=1.0),
        default=0.5,
        help="Share of a prompt that a slot must hold to be preferred for it; 0: off, always the least recently used"
        " slot.",
    )
    cache_ram: int = flag(
        names=("-cram", "--cache-ram"),
        env=("LLAMA_ARG_CACHE_RAM",),
        kind=Int(low=-1),
        default=8192,
        help="Host memory in MiB for prompts evicted from slots, at most half of what is free; 0: off, -1: no"
        " limit.",
    )
    cache_idle_slots: bool = flag(
        names=("--cache-idle-slots",),
        off=("--no-cache-idle-slots",),
        env=("LLAMA_ARG_CACHE_IDLE_SLOTS",),
        default=True,
        help="In a unified KV cache, save an idle slot's prompt to --cache-ram when running requests need its cells;"
        " off: drop it.",
    )
    share_prefixes: bool = flag(
        names=("--share-prefixes",),
        env=("LLAMA_ARG_SHARE_PREFIXES",),
        default=False,
        help="Share cached prompts, slots and encoded images between API keys; off: each key has its own.",
    )
    system_prompt_file: str | None = flag(
        names=("-spf", "--system-prompt-file"),
        env=("LLAMA_ARG_SYSTEM_PROMPT_FILE",),
        kind=File(),
        default=None,
        help="System prompt before every prompt: a text file, or JSON with prompt, anti_prompt and"
        " assistant_name.",
    )
    # Whether a request may change the system prompt.
    system_prompt_field: bool = flag(
        names=("--no-system-prompt",),
        env=("LLAMA_ARG_NO_SYSTEM_PROMPT",),
        kind=Switch(on=False, off=True),
        default=True,
        help="Reject requests that change the system prompt.",
    )
    system_prompt_shared: bool = flag(
        names=("--system-prompt-shared",),
        env=("LLAMA_ARG_SYSTEM_PROMPT_SHARED",),
        default=False,
        help="Share the system prompt and the adapter scales that requests set between API keys; off: each key has its"
        " own.",
    )
    slot_save_path: str | None = flag(
        names=("--slot-save-path",),
        env=("LLAMA_ARG_SLOT_SAVE_PATH",),
        kind=File(),
        default=None,
        secret=True,
        help="Directory for state files; enables saving slots and sessions to files.",
    )
    sessions_max_bytes: int = flag(
        names=("--sessions-max-bytes",),
        env=("LLAMA_ARG_SESSIONS_MAX_BYTES",),
        kind=Size(0),
        default=8 * 1024**3,
        help="Maximum memory for all sessions; beyond it a save is a 507. 0: no sessions.",
    )
    sessions_evict: bool = flag(
        names=("--sessions-evict",),
        off=("--no-sessions-evict",),
        env=("LLAMA_ARG_SESSIONS_EVICT",),
        default=False,
        help="Evict the least recently used sessions when a save needs room, instead of the 507.",
    )
    queue_max: int = flag(
        names=("--queue-max",),
        env=("LLAMA_ARG_QUEUE_MAX",),
        reload=True,
        kind=Int(1, 1_000_000),
        default=512,
        help="Maximum requests waiting for a slot; beyond it: 429.",
    )
    step_tokens_max: int = flag(
        names=("--step-tokens-max",),
        env=("LLAMA_ARG_STEP_TOKENS_MAX",),
        kind=Int(low=0),
        default=0,
        help="Maximum tokens per step while slots are decoding; 0: adaptive.",
    )
    step_trace: str | None = flag(
        names=("--step-trace",),
        env=("LLAMA_ARG_STEP_TRACE",),
        kind=File(),
        default=None,
        help="Write a JSON line per engine step to this file.",
    )


FLAGS = (
    *flags_of(Slots, TITLE),
    *(option_flag(name, TITLE, "The default for requests.") for name in ("cache_prompt", "n_cache_reuse")),
)
