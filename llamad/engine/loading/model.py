"""A loaded model and its contexts: makes llama.cpp's parameters from the settings, and reads the model's metadata.

load() runs in the engine's main thread; everything is read-only afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llamad._llama import ffi, lib
from llamad.engine.loading import adapters, control_vectors, embedding_context, memory, thread_pools
from llamad.engine.loading.embedding_context import Vectors
from llamad.engine.loading.opening import Loading, open_model
from llamad.engine.loading.thread_pools import Pools
from llamad.options.model_keys import SAMPLING_KEYS, SAMPLING_PREFIX, SAMPLING_TEXT_MAX
from llamad.protocol.control_messages import Loaded
from llamad.protocol.errors import LoadError
from llamad.protocol.model_info import AdapterInfo, ModelInfo
from llamad.ses1.ses1 import Layout, StateError
from llamad.tokenizer.vocab import Vocab

if TYPE_CHECKING:
    from llamad.flags.settings import ModelSettings

CTX_SLOT_MIN = 8
# Fields of llama.cpp's context parameters that are named like the settings.
_SAME_NAMES = (
    "n_ctx n_batch kv_unified swa_full op_offload rope_freq_base rope_freq_scale"
    " yarn_orig_ctx yarn_ext_factor yarn_attn_factor yarn_beta_slow yarn_beta_fast"
).split()


class LoadedModel:
    """An open model with a context for generation, one for embeddings, or both. close() frees everything; the engine's
    and the embedder's threads must have ended before."""

    def __init__(
        self,
        handle: Any,
        context: Any,
        info: ModelInfo,
        vocab: Vocab,
        settings: ModelSettings,
        vectors: Vectors | None = None,
        pools: Pools | None = None,
        warnings: Sequence[str] = (),
        adapters: Sequence[AdapterInfo] = (),
    ) -> None:
        self.handle = handle
        self._path = settings.model
        self._context = context  # None: the model cannot generate
        self.info = info
        self.vocab = vocab
        self.vectors = vectors
        self.pools = pools  # the thread pools of every context; None: llama.cpp's own threads
        self.adapters = list(adapters)
        self.warnings = warnings  # about flags that have no effect here
        self.has_device = memory.computes(settings, handle)
        if context is None:
            assert vectors is not None
            self.n_ctx = self.n_ctx_slot = self.n_batch = self.n_ubatch = vectors.info.n_text_max
            self.can_share, self.needs_checkpoints = False, False
            self.n_swa = self.n_cells = self.n_window = self.n_rollback = 0
            self.spare_seq = -1
        else:
            raw = lib.llamad_context_get(context)
            self.n_ctx = lib.llama_n_ctx(raw)
            self.n_ctx_slot = self.n_ctx if settings.kv_unified else lib.llama_n_ctx_seq(raw)
            # Cells that the slots share; 0: each slot has its own. A recurrent model has a state for each slot, and no
            # cells.
            is_shared = settings.kv_unified and not lib.llama_model_is_recurrent(handle)
            self.n_cells = self.n_ctx if is_shared else 0
            self.spare_seq = spare_sequence(settings, handle)
            self.n_row = lib.llama_model_n_embd_inp(handle)  # floats of an input embedding
            self.n_batch = lib.llama_n_batch(raw)
            self.n_ubatch = lib.llama_n_ubatch(raw)
            # A state that cannot be truncated to a prefix cannot be shared with another sequence either.
            self.can_share = not (lib.llama_model_is_recurrent(handle) or lib.llama_model_is_hybrid(handle))
            # Of a memory that cannot be truncated, so many of a slot's last tokens can be removed.
            self.n_rollback = lib.llama_n_rs_seq(raw)
            # Set even with --swa-full, because a restored state has only the window.
            self.n_swa = lib.llama_model_n_swa(handle)
            is_short = self.n_swa > 0 and not settings.swa_full
            # Cells of a sliding window that the slots share; 0: there is none, or each slot has its own.
            self.n_window = 0
            if is_short and self.n_cells:
                n_slots = settings.n_parallel
                self.n_window = memory.window_cells(self.n_ctx, self.n_swa, n_slots, self.n_ubatch)
            # Checkpoints are needed to go back to an earlier token. Self-extend moves the tokens that they refer to.
            self.needs_checkpoints = (is_short or not self.can_share) and settings.grp_attn_n == 1
            self.n_ctx_slot = min(self.n_ctx_slot, settings.kv_unified_per_slot or self.n_ctx_slot)

    @property
    def can_generate(self) -> bool:
        return self._context is not None

    def description(self) -> Loaded:
        """Return what the front must know to serve the model."""
        vectors = self.vectors
        return Loaded(
            info=self.info,
            n_ctx=self.n_ctx,
            n_ctx_slot=self.n_ctx_slot,
            can_generate=self.can_generate,
            vectors=vectors.info if vectors is not None else None,
            vectors_pack=(vectors.n_pack, vectors.n_seq_max) if vectors is not None else (0, 0),
            suppressed_tokens=self.suppressed_tokens(),
            adapters=self.adapters,
        )

    def can_copy(self, settings: ModelSettings, states: Sequence[bytes]) -> bool:
        """Return whether slots' states can be copied within the devices; `states` are those of one token and of two.
        llama.cpp crashes if rows are quantized. It puts a copy into the memory of an earlier one of the same size,
        which is too small if rows are padded there."""
        if (
            not self.has_device
            or not settings.kv_offload
            or settings.split_mode == "tensor"
            or len(states) < 2
        ):
            return False
        try:
            unit = Layout(states[0], states[1], self.n_swa).row_unit()
        except StateError:
            return False
        return unit > 0 and unit % lib.llamad_model_alignment(self.handle) == 0

    def open_adapter(self, path: str, number: int) -> AdapterInfo:
        """Open a LoRA adapter; any thread. If it raises FileRefused, nothing has changed."""
        return adapters.open_adapter(self.handle, self._path, path, number)

    def suppressed_tokens(self) -> list[int]:
        """Return the tokens that this model must never produce."""
        n = ffi.new("int32_t *")
        tokens = lib.llama_vocab_get_suppress_tokens(lib.llama_model_get_vocab(self.handle), n)
        return [tokens[i] for i in range(n[0])] if tokens != ffi.NULL else []

    @property
    def contexts(self) -> list[Any]:
        """Return the contexts that the model has."""
        second = self.vectors.context if self.vectors is not None else None
        return [one for one in (self._context, second) if one is not None]

    @property
    def context_address(self) -> int:
        return int(ffi.cast("uintptr_t", self._context))

    def close(self) -> None:
        if self.vectors is not None:
            self.vectors.close()
        if self._context is not None:
            lib.llamad_context_close(self._context)
            self._context = None
        if self.handle is not None:
            lib.llamad_model_close(self.handle)
            self.handle = None


def context_params(settings: ModelSettings, n_threads: int) -> Any:
    """Return llama.cpp's parameters of a context with these settings."""
    params = lib.llama_context_default_params()
    for name in _SAME_NAMES:
        setattr(params, name, getattr(settings, name))
    params.n_ubatch = memory.ubatch(settings)
    params.n_seq_max = settings.n_parallel
    params.n_threads = n_threads
    params.n_threads_batch = settings.n_threads_batch or n_threads
    params.flash_attn_type = {
        "on": lib.LLAMA_FLASH_ATTN_TYPE_ENABLED,
        "off": lib.LLAMA_FLASH_ATTN_TYPE_DISABLED,
        "auto": lib.LLAMA_FLASH_ATTN_TYPE_AUTO,
    }[settings.flash_attn]
    params.type_k = getattr(lib, f"GGML_TYPE_{settings.cache_type_k.upper()}")
    params.type_v = getattr(lib, f"GGML_TYPE_{settings.cache_type_v.upper()}")
    params.offload_kqv = settings.kv_offload
    params.no_perf = True
    if settings.rope_scaling is not None:
        params.rope_scaling_type = getattr(lib, f"LLAMA_ROPE_SCALING_TYPE_{settings.rope_scaling.upper()}")
    return params


def spare_sequence(settings: ModelSettings, handle: Any) -> int:
    """Return the number of a sequence that no slot has, through which prompts are saved and restored in parts; -1 if
    that is not possible. It takes no memory."""
    is_whole = lib.llama_model_is_recurrent(handle) or lib.llama_model_is_hybrid(handle)
    if is_whole or lib.llama_model_n_swa(handle) > 0 or settings.grp_attn_n > 1:
        return -1
    n = settings.n_parallel
    is_one_cache = settings.kv_unified or n == 1  # of one slot, it makes no difference
    return n if is_one_cache and n < lib.llama_max_parallel_sequences() else -1


def _no_generation(settings: ModelSettings) -> LoadError:
    return LoadError(
        f"{settings.model} is an embedding model and cannot generate text;"
        " give --embedding (--reranking for a reranker or classifier), or another model"
    )


def _check(settings: ModelSettings, handle: Any) -> None:
    """Raise LoadError for settings that cannot work, or would make llama.cpp abort."""
    if lib.llama_model_has_encoder(handle) or not lib.llama_model_has_decoder(handle):
        raise LoadError(
            f"{settings.model} is an encoder-decoder model (T5 and the like), which llamad does not support;"
            " use a decoder-only or encoder-only model"
        )
    n_max = lib.llama_max_parallel_sequences()
    if settings.n_parallel > n_max:
        raise LoadError(f"--parallel {settings.n_parallel}: this llama.cpp has at most {n_max} sequences")
    if not settings.wants_vectors:
        if settings.attention == "non-causal":
            raise LoadError(
                "--attention non-causal is for embeddings only; give --embedding, or leave it out"
            )
        return
    if settings.reranking and settings.pooling not in (None, "rank"):
        raise LoadError(
            f"--reranking needs --pooling rank, not {settings.pooling}; leave --pooling out, or give --embedding"
        )
    if embedding_context.wanted_pooling(settings) is None and not embedding_context.has_known_pooling(
        settings, handle
    ):
        raise LoadError(
            f"{settings.model} has a pooling type that llama.cpp does not know; give one with --pooling"
        )


def check_generation(settings: ModelSettings, handle: Any) -> None:
    """Raise LoadError for settings with which the context for generation cannot work, or would make llama.cpp abort."""
    if settings.n_parallel > settings.n_batch:
        raise LoadError(
            f"--batch-size {settings.n_batch} is smaller than --parallel {settings.n_parallel}:"
            " a step needs a token for every slot; raise -b"
        )
    n_ctx = settings.n_ctx or lib.llama_model_n_ctx_train(handle)
    if n_ctx < settings.n_parallel * CTX_SLOT_MIN:
        raise LoadError(
            f"--ctx-size {n_ctx} over --parallel {settings.n_parallel} leaves less than {CTX_SLOT_MIN} tokens"
            " for each slot; raise -c or lower -np"
        )
    if 0 < settings.kv_unified_per_slot < CTX_SLOT_MIN:
        raise LoadError(
            f"--kv-unified-per-slot {settings.kv_unified_per_slot}: a slot needs at least {CTX_SLOT_MIN} tokens"
        )
    for flag, name in (("k", settings.cache_type_k), ("v", settings.cache_type_v)):
        block = lib.ggml_blck_size(getattr(lib, f"GGML_TYPE_{name.upper()}"))
        size = memory.head_size(handle, flag)
        if size % block:
            raise LoadError(
                f"--cache-type-{flag} {name} needs heads of a multiple of {block}; this model's are {size}"
            )


def _text(value: Any) -> str:
    return "" if value == ffi.NULL else ffi.string(value).decode("utf-8", "replace")


def _sampling(handle: Any) -> dict[str, str]:
    """Return the sampling defaults in the file's metadata."""
    texts = {name: memory.meta(handle, SAMPLING_PREFIX + name) for name in SAMPLING_KEYS}
    return {name: text[:SAMPLING_TEXT_MAX] for name, text in texts.items() if text is not None}


def _info(settings: ModelSettings, handle: Any) -> ModelInfo:
    vocab = lib.llama_model_get_vocab(handle)
    n_vocab, nl = lib.llama_vocab_n_tokens(vocab), lib.llama_vocab_nl(vocab)
    buffer = ffi.new("char[256]")
    lib.llama_model_desc(handle, buffer, 256)
    return ModelInfo(
        path=settings.model,
        description=_text(buffer),
        arch=memory.meta(handle, "general.architecture") or "",
        ftype=_text(lib.llama_ftype_name(lib.llama_model_ftype(handle))),
        sampling=_sampling(handle),
        vocab_type=lib.llama_vocab_type(vocab),
        n_vocab=n_vocab,
        n_ctx_train=lib.llama_model_n_ctx_train(handle),
        n_embd=lib.llama_model_n_embd(handle),
        n_params=lib.llama_model_n_params(handle),
        size=lib.llama_model_size(handle),
        chat_template=_text(lib.llama_model_chat_template(handle, ffi.NULL)),
        bos=lib.llama_vocab_bos(vocab),
        eos=lib.llama_vocab_eos(vocab),
        eot=lib.llama_vocab_eot(vocab),
        add_bos=lib.llama_vocab_get_add_bos(vocab),
        nl=nl if 0 <= nl < n_vocab else -1,  # without a newline token, llama.cpp may return an invalid one
        sep=lib.llama_vocab_sep(vocab),
        add_eos=lib.llama_vocab_get_add_eos(vocab),
        add_sep=lib.llama_vocab_get_add_sep(vocab),
        rerank_template=_text(lib.llama_model_chat_template(handle, b"rerank")) or None,
        fim_pre=lib.llama_vocab_fim_pre(vocab),
        fim_suf=lib.llama_vocab_fim_suf(vocab),
        fim_mid=lib.llama_vocab_fim_mid(vocab),
        fim_rep=lib.llama_vocab_fim_rep(vocab),
        fim_sep=lib.llama_vocab_fim_sep(vocab),
        tool_use_template=_text(lib.llama_model_chat_template(handle, b"tool_use")) or None,
    )


def _open_context(settings: ModelSettings, handle: Any, n_threads: int, is_survey: bool) -> Any:
    """Return the context for generation. Raises LoadError."""
    check_generation(settings, handle)
    params = context_params(settings, n_threads)
    if memory.computes(settings, handle):
        n_unloaded = lib.llama_model_size(handle) if is_survey else 0
        params.n_ubatch = memory.device_ubatch(settings, handle, n_unloaded)
    params.n_outputs_max = memory.n_outputs(settings)
    if spare_sequence(settings, handle) >= 0:
        params.n_seq_max += 1
        params.kv_unified = True
    params.n_rs_seq = memory.n_rollback(settings, params.n_ubatch)
    context = lib.llamad_context_open(handle, params)
    if context == ffi.NULL and params.n_ubatch > memory.ubatch(settings):
        params.n_ubatch = memory.ubatch(settings)
        params.n_rs_seq = memory.n_rollback(settings, params.n_ubatch)
        context = lib.llamad_context_open(handle, params)
    if context == ffi.NULL:
        raise LoadError(
            f"cannot create a context for {settings.n_parallel} slots; lower -c or -np,"
            " the log above has llama.cpp's reason"
        )
    try:
        memory_handle = lib.llama_get_memory(lib.llamad_context_get(context))
        if memory_handle == ffi.NULL:
            raise _no_generation(settings)
        if settings.grp_attn_n > 1 and not lib.llamad_can_shift(context):
            raise LoadError("--grp-attn-n: this model's KV cache cannot be shifted; drop self-extend")
    except LoadError:
        lib.llamad_context_close(context)
        raise
    return context


def _unbinding_limit(settings: ModelSettings, context: Any) -> list[str]:
    """Return a warning if the slots can never reach --kv-unified-per-slot."""
    raw = lib.llamad_context_get(context)
    n_slot = lib.llama_n_ctx(raw) if settings.kv_unified else lib.llama_n_ctx_seq(raw)
    if settings.kv_unified_per_slot <= n_slot:
        return []
    return [
        f"--kv-unified-per-slot {settings.kv_unified_per_slot} has no effect: a slot has {n_slot} tokens; raise -c,"
        " or leave it out"
    ]


def _open_vectors(settings: ModelSettings, handle: Any, n_threads: int) -> Vectors:
    params = context_params(settings, n_threads)
    embedding_context.set_params(params, settings, handle)
    context = lib.llamad_context_open(handle, params)
    if context == ffi.NULL:
        raise LoadError(
            "cannot create a context for embeddings; lower -c, -b or -ub, the log above has llama.cpp's reason"
        )
    return Vectors(handle, context, settings)


def open_contexts(
    settings: ModelSettings, handle: Any, n_threads: int, is_survey: bool = False
) -> tuple[Any, Vectors | None]:
    """Return the context for generation, which is None if the model cannot generate, and the one for embeddings, if the
    flags enable them. Raises LoadError."""
    _check(settings, handle)
    second = _open_vectors(settings, handle, n_threads) if settings.wants_vectors else None
    if second is not None and second.is_encoder:
        return None, second
    try:
        return _open_context(settings, handle, n_threads, is_survey), second
    except BaseException:
        if second is not None:
            second.close()
        raise


def load(settings: ModelSettings, n_threads: int, loading: Loading, is_survey: bool = False) -> LoadedModel:
    """Open the model and its contexts; a survey allocates nothing. If it raises LoadError, it has freed everything."""
    requested = thread_pools.pools(settings, n_threads)
    pools, warnings = thread_pools.permitted(requested) if requested is not None else (None, [])
    handle = open_model(settings, n_threads, loading, is_survey)
    context, second = None, None
    try:
        opened = [
            adapters.open_adapter(handle, settings.model, file.path, number, is_survey)
            for number, file in enumerate(settings.lora)
        ]
        control = control_vectors.read(settings, handle)
        context, second = open_contexts(settings, handle, n_threads, is_survey)
        for one in (second.context if second is not None else None, context):
            if one is not None:
                thread_pools.attach(one, pools)
                control_vectors.attach(settings, handle, one, control)
        if context is not None:
            warnings += _unbinding_limit(settings, context)
        info = _info(settings, handle)
        table = int(ffi.cast("uintptr_t", lib.llamad_llama_table()))
        address = int(ffi.cast("uintptr_t", lib.llama_model_get_vocab(handle)))
        vocab = Vocab(table, address, info.n_vocab, settings.special)
        return LoadedModel(handle, context, info, vocab, settings, second, pools, warnings, opened)
    except BaseException:
        if second is not None:
            second.close()
        if context is not None:
            lib.llamad_context_close(context)
        lib.llamad_model_close(handle)
        raise
