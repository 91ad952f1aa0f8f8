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
        default=True,
        help="Continuous batching: admit requests while others run.",
    )
    slot_prompt_similarity: float = flag(
        names=("-sps", "--slot-prompt-similarity"),
        kind=Float(low=0.0, high=1.0),
        default=0.5,
        help="Share of a prompt that a slot must hold to be preferred for it; 0: off, always the slot whose"
        " prefix is worth least.",
    )
    cache_ram: int = flag(
        names=("-cram", "--cache-ram"),
        kind=Int(low=-1),
        default=8192,
        help="Host memory in MiB for prompts of slots, which outlive the model's engine, at most half of what is free;"
        " 0: off, -1: no limit.",
    )
    cache_idle_slots: bool = flag(
        off=("--no-cache-idle-slots",),
        default=True,
        help="Save the prompts of idle slots to --cache-ram: once nothing runs, in at most 1 % of the time of what"
        " runs, and in a unified KV cache when running requests need their cells; off: do not.",
    )
    share_prefixes: bool = flag(
        default=False,
        help="Share cached prompts, slots and encoded images between API keys; off: each key has its own.",
    )
    system_prompt_file: str | None = flag(
        names=("-spf", "--system-prompt-file"),
        kind=File(),
        default=None,
        help="System prompt before every prompt: a text file, or JSON with prompt, anti_prompt and"
        " assistant_name.",
    )
    # Whether a request may change the system prompt.
    system_prompt_field: bool = flag(
        names=("--no-system-prompt",),
        kind=Switch(on=False, off=True),
        default=True,
        help="Reject requests that change the system prompt.",
    )
    system_prompt_shared: bool = flag(
        default=False,
        help="Share the system prompt and the adapter scales that requests set between API keys; off: each key has its"
        " own.",
    )
    slot_save_path: str | None = flag(
        kind=File(),
        default=None,
        secret=True,
        help="Directory for state files; enables saving slots and sessions to files.",
    )
    sessions_max_bytes: int = flag(
        kind=Size(0),
        default=8 * 1024**3,
        help="Maximum memory for all sessions; beyond it a save is a 507. 0: no sessions.",
    )
    sessions_evict: bool = flag(
        off=("--no-sessions-evict",),
        default=False,
        help="Evict the least recently used sessions when a save needs room, instead of the 507.",
    )
    queue_max: int = flag(
        reload=True,
        kind=Int(1, 1_000_000),
        default=512,
        help="Maximum requests waiting for a slot; beyond it: 429.",
    )
    step_tokens_max: int = flag(
        kind=Int(low=0),
        default=0,
        help="Maximum tokens per step while slots are decoding; 0: adaptive.",
    )
    step_trace: str | None = flag(
        kind=File(),
        default=None,
        help="Write a JSON line per engine step to this file.",
    )


FLAGS = (
    *flags_of(Slots, TITLE),
    *(option_flag(name, TITLE, "The default for requests.") for name in ("cache_prompt", "n_cache_reuse")),
)
