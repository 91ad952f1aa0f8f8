"""Owns the typed result of parsing: one field per setting that works in this version.

Built once by `parse`, then read-only, from any thread. Must not have defaults: they are in the table.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from llamad.flags.types.values import AdapterFile, KvOverride, Placement, ScaledFile
from llamad.options.table import WITH_FLAG, Options

Auto = Literal["on", "off", "auto"]
CacheType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting of a running daemon; `None` means "from the model" unless a comment says otherwise."""

    env_file: str | None  # None: no file

    # model
    model: str
    aliases: tuple[str, ...]  # the first is the model's name; empty: its name at the hub, or its path
    tags: tuple[str, ...]
    check_tensors: bool
    override_kv: tuple[KvOverride, ...]
    mmap: bool
    mlock: bool
    load_mode: Literal["auto", "none", "mmap", "mlock", "mmap+mlock", "dio"]  # auto: by mmap and mlock
    lazy_mode: Literal["on", "off", "auto"]
    warmup: bool

    # models by name
    hf_repo: str | None  # None: not given, here and below
    hf_file: str | None
    hf_token: str | None
    model_url: str | None
    offline: bool

    # adapters
    lora: tuple[AdapterFile, ...]
    lora_init_without_apply: bool
    lora_load_path: str | None  # None: adapters are loaded at start-up only
    lora_load_max: int
    control_vector: tuple[ScaledFile, ...]
    control_vector_layer_range: tuple[int, int]  # 0: the first, or the last, that there is

    # context
    n_ctx: int  # 0: from the model
    n_batch: int
    n_ubatch: int  # 0: n_batch; -1: automatic
    context_shift: bool
    grp_attn_n: int  # self-extend; 1: off
    grp_attn_w: int
    kv_unified: bool
    kv_unified_per_slot: int  # tokens; 0: no limit
    swa_full: bool
    cache_type_k: CacheType
    cache_type_v: CacheType
    flash_attn: Auto
    kv_offload: bool
    embeddings: bool
    reranking: bool  # means embeddings with pooling rank
    embd_normalize: int  # -1: none
    pooling: Literal["none", "mean", "cls", "last", "rank"] | None
    attention: Literal["causal", "non-causal"] | None

    # rope and yarn
    rope_scaling: Literal["none", "linear", "yarn"] | None
    rope_freq_base: float  # 0: from the model
    rope_freq_scale: float  # 0: from the model; --rope-scale N sets 1/N
    yarn_orig_ctx: int  # 0: from the model
    yarn_ext_factor: float  # negative: from the model, here and below
    yarn_attn_factor: float
    yarn_beta_slow: float
    yarn_beta_fast: float

    # CPUs and GPUs
    n_threads: int  # 0: automatic
    n_threads_batch: int  # 0: same as n_threads
    n_threads_sampling: int  # 0: automatic
    cpu_mask: tuple[int, ...]  # CPUs; empty, with the range: any
    cpu_range: tuple[int, ...]
    cpu_strict: int  # 1: a CPU for each thread
    prio: int
    poll: int
    cpu_mask_batch: tuple[int, ...]  # empty, with the range: those of decoding; None below: the same
    cpu_range_batch: tuple[int, ...]
    cpu_strict_batch: int | None
    prio_batch: int | None
    poll_batch: int | None
    numa: Literal["distribute", "isolate", "numactl"] | None  # None: off
    n_gpu_layers: int  # -1: as many as fit
    split_mode: Literal["none", "layer", "row", "tensor"]
    tensor_split: tuple[float, ...]  # empty: by free memory
    main_gpu: int
    devices: tuple[str, ...]  # empty: all; ("none",): no GPU
    rpc: tuple[str, ...]  # HOST:PORT of workers
    override_tensor: tuple[Placement, ...]
    cpu_moe: bool
    n_cpu_moe: int  # layers, here and below
    n_cpu_ffn: int
    repack: bool
    no_host: bool
    op_offload: bool
    llama_api_only: bool
    fit: Literal["on", "off"]
    fit_target: tuple[int, ...]  # MiB that stay free on each device; one value: on each of them
    fit_ctx: int
    keeps_ctx: bool  # -c was given, or follows from another flag: it is not fitted
    inputs_on_device: bool | None  # the token embedding table; None: where there is memory to spare

    # slots
    n_parallel: int
    cont_batching: bool
    slot_prompt_similarity: float
    cache_ram: int
    cache_idle_slots: bool
    ctx_checkpoints: int  # per slot; 0: none
    checkpoint_min_step: int
    share_prefixes: bool
    system_prompt_file: str | None  # None: no system prompt
    system_prompt_field: bool  # whether a request may change it
    system_prompt_shared: bool  # whether it is changed for all API keys; and so are scales of adapters
    slot_save_path: str | None  # None: no state files
    sessions_max_bytes: int  # 0: no sessions
    sessions_evict: bool
    queue_max: int
    answer_max_bytes: int
    stall_seconds: float  # 0: no limit
    engine_stall_seconds: float  # 0: automatic
    step_tokens_max: int  # 0: adaptive
    step_trace: str | None  # None: no trace

    # limits of a request
    n_predict_max: int  # 0: no cap
    prompts_max: int
    inputs_max: int
    stop_max: int
    n_max: int
    n_probs_max: int
    special: bool
    request_timeout: float  # seconds; 0: none

    # images and sound
    mmproj: str | None  # None: text only
    mmproj_url: str | None  # None: not given
    mmproj_auto: bool | None  # None: not given
    mmproj_offload: bool
    mmproj_device: str | None
    image_min_tokens: int | None  # None: the projector's, here and below
    image_max_tokens: int | None
    image_max_pixels: int
    audio_max_seconds: int
    media_path: str | None
    media_urls: bool
    media_max_bytes: int
    media_cache_bytes: int

    # defaults of a request
    options: Options
    given: frozenset[str]  # the options that a flag or a variable set; a model's file may set the others
    escape: bool  # already applied to the options

    # for requests without one; at most one of the four is given
    grammar: str | None
    grammar_file: str | None
    json_schema: str | None
    json_schema_file: str | None

    # chats
    chat_template: str | None  # None: from the model
    chat_template_file: str | None
    chat_template_kwargs: str  # JSON
    jinja: bool
    reasoning_format: Literal["none", "auto", "deepseek", "deepseek-legacy"]
    reasoning: Literal["on", "off", "auto"]
    reasoning_effort: str  # "default": from the template
    reasoning_budget: int  # tokens; -1: no limit
    reasoning_budget_message: str | None
    reasoning_preserve: bool
    skip_chat_parsing: bool
    prefill_assistant: bool
    spm_infill: bool

    # the server
    hosts: tuple[
        str, ...
    ]  # addresses, or paths of Unix sockets where one starts with "/" or ends with ".sock"
    port: int
    reuse_port: bool
    timeout: float  # seconds without progress while reading a request or writing a response
    api_keys: tuple[str, ...]
    api_key_file: str | None  # None: no file
    ssl_key_file: str | None  # both or neither
    ssl_cert_file: str | None
    cors_origins: tuple[str, ...]  # "*": any; "localhost"; "auto": by the keys; empty: none
    cors_methods: str
    cors_headers: str  # "*": any
    cors_credentials: bool
    allowed_hosts: tuple[str, ...]  # "*": any
    trusted_proxies: tuple[str, ...]  # networks, "unix"
    proxy_protocol: bool
    api_prefix: str  # starts with "/" and does not end with it; empty: none
    ui: bool
    static_path: str | None  # None: llamad's own page
    endpoint_slots: bool
    endpoint_metrics: bool
    metrics_public: bool
    endpoint_props: bool
    drain_seconds: float
    drain_delay_seconds: float
    exit_on_load_failure: bool
    ping_seconds: float  # 0 or less: no pings

    # limits of the HTTP layer
    connections_max: int
    address_connections_max: int  # 0: no limit of its own
    header_max_bytes: int
    body_max_bytes: int
    bodies_max_bytes: int
    header_timeout: float
    body_timeout: float
    keepalive_timeout: float
    stream_buffer_bytes: int

    # logs
    verbosity: (
        int  # 0: critical, 1: errors, 2: warnings, 3: information, 4: debug, above 9: __verbose in answers
    )
    log_prompts: bool
    log_enabled: bool
    log_file: str | None  # None: standard error only
    log_file_mode: Literal["truncate", "append", "new"]
    log_format: Literal["auto", "json", "text"]  # auto: text on a terminal and in the journal, else JSON
    log_colors: Auto
    log_prefix: bool
    log_timestamps: Auto  # auto: not in the journal
    log_test: bool
    log_prompts_dir: str | None  # None: no files

    @property
    def alias(self) -> str | None:
        """The model's name; None: its path."""
        return self.aliases[0] if self.aliases else self.hf_repo

    @property
    def is_remote(self) -> bool:
        """Whether a file of the model has to be looked for in the cache or downloaded."""
        return any(one is not None for one in (self.hf_repo, self.model_url, self.mmproj_url))

    @property
    def wants_vectors(self) -> bool:
        """Whether any endpoint computes embeddings or scores."""
        return self.embeddings or self.reranking

    @property
    def wants_states(self) -> bool:
        """Whether any endpoint can request a slot's state."""
        return self.endpoint_slots or self.slot_save_path is not None

    def get(self, dest: str) -> Any:
        """The value that a flag of this `dest` sets."""
        return getattr(self.options if dest in WITH_FLAG else self, dest)
