"""The context for embeddings and scores: its parameters from the flags, its limits, and its computation.

It is opened in the engine's main thread; compute() and compute_mixed() run only in the embedder's. Every length is
checked here first, because llama.cpp would abort on a wrong one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llamad._llama import ffi, lib
from llamad.engine.loading import memory
from llamad.protocol import blobs
from llamad.protocol.control_messages import MediaRun
from llamad.protocol.model_info import VectorInfo

if TYPE_CHECKING:
    from llamad.flags.settings import ModelSettings

# The most texts in one batch. They share one cache, or need none, so more of them cost nothing.
SEQUENCES_MAX = 64

_POOLINGS = ("none", "mean", "cls", "last", "rank")


def wanted_pooling(settings: ModelSettings) -> str | None:
    return "rank" if settings.reranking else settings.pooling


def _own_pooling(settings: ModelSettings, handle: Any) -> str:
    """Return the number of the model's own pooling type as text; "-1" if it has none."""
    arch = memory.meta(handle, "general.architecture") or ""
    number = memory.meta(handle, f"{arch}.pooling_type")
    for override in settings.override_kv:
        if override.key == f"{arch}.pooling_type":
            number = str(override.value)
    return "-1" if number is None else number


def has_known_pooling(settings: ModelSettings, handle: Any) -> bool:
    """Return whether the model's own pooling type is valid or not given; llama.cpp aborts on any other."""
    return _own_pooling(settings, handle) in {str(i) for i in range(-1, len(_POOLINGS))}


def text_max(settings: ModelSettings, handle: Any) -> int:
    """Return the most tokens of a text that the context size allows: a slot's share of -c, as for generation."""
    n = int(lib.llama_model_n_ctx_train(handle))
    if settings.n_ctx:
        n = settings.n_ctx if settings.kv_unified else max(1, settings.n_ctx // settings.n_parallel)
    return min(n, settings.kv_unified_per_slot or n)


def _sees_whole_texts(settings: ModelSettings, handle: Any) -> bool:
    """Return whether, by its metadata, the model's attention is not causal, so that a text must be in one batch."""
    arch = memory.meta(handle, "general.architecture") or ""
    return (
        settings.attention == "non-causal"
        or memory.meta(handle, f"{arch}.attention.causal") == "false"
        or arch.endswith(("bert", "-embedding"))
    )


def n_ubatch(settings: ModelSettings, handle: Any) -> int:
    """Return the tokens of one batch: -ub, because llama.cpp may keep a row of logits for every token. If a text must
    be in one batch, it is a whole text, up to -b."""
    n = memory.ubatch(settings)
    if _sees_whole_texts(settings, handle):
        n = max(n, min(settings.n_batch, text_max(settings, handle), lib.llama_model_n_ctx_train(handle)))
    return n


def n_cells(settings: ModelSettings, handle: Any) -> int:
    """Return the cells of the cache, if the model has one: enough for a batch, and for the longest text."""
    step = memory.CELLS_STEP
    n = max(n_ubatch(settings, handle), text_max(settings, handle))
    return -(-n // step) * step


def set_params(params: Any, settings: ModelSettings, handle: Any) -> None:
    """Turn the parameters of the generating context into those of this one."""
    params.embeddings = True
    pooling = wanted_pooling(settings)
    if pooling is not None:
        params.pooling_type = getattr(lib, f"LLAMA_POOLING_TYPE_{pooling.upper()}")
    if settings.attention is not None:
        name = settings.attention.upper().replace("-", "_")
        params.attention_type = getattr(lib, f"LLAMA_ATTENTION_TYPE_{name}")
    params.n_ubatch = params.n_batch = n = n_ubatch(settings, handle)
    # All texts of a batch share one cache. With one stream for each, llama.cpp would split texts of unequal length over
    # several graphs, and a mean would be that of the last split.
    params.kv_unified = True
    has_states = lib.llama_model_is_recurrent(handle) or lib.llama_model_is_hybrid(handle)
    n_seq_max = settings.n_parallel if has_states else SEQUENCES_MAX
    params.n_seq_max = max(1, min(n_seq_max, n, lib.llama_max_parallel_sequences()))
    params.n_ctx = n_cells(settings, handle)


def _has_head(settings: ModelSettings) -> bool:
    path = os.fsencode(settings.model)
    return any(lib.llamad_gguf_has_tensor(path, name) != 0 for name in (b"cls.weight", b"cls.output.weight"))


def _labels(handle: Any) -> tuple[str, ...]:
    labels = []
    for i in range(lib.llama_model_n_cls_out(handle)):
        label = lib.llama_model_cls_label(handle, i)
        labels.append(
            f"LABEL_{i}"
            if label == ffi.NULL
            else ffi.string(label).decode("utf-8", "replace") or f"LABEL_{i}"
        )
    return tuple(labels)


class Vectors:
    """An open context for embeddings. close() frees it; the embedder's thread must have ended before."""

    def __init__(self, handle: Any, context: Any, settings: ModelSettings) -> None:
        self.context = context
        raw = lib.llamad_context_get(context)
        has_memory = lib.llama_get_memory(raw) != ffi.NULL
        pooling = _POOLINGS[lib.llama_pooling_type(raw)]
        n_batch: int = min(lib.llama_n_batch(raw), lib.llama_n_ubatch(raw))
        n_text_max = text_max(settings, handle)
        if not has_memory or lib.llama_model_rope_type(handle) == lib.LLAMA_ROPE_TYPE_NONE:
            n_text_max = min(n_text_max, lib.llama_model_n_ctx_train(handle))
        is_causal = has_memory and bool(lib.llama_get_causal_attn(raw))
        is_split = is_causal and pooling in ("none", "last", "rank")
        is_rank = pooling == "rank"
        self.is_encoder: bool = not has_memory  # such a model cannot generate
        self.n_seq_max: int = lib.llama_n_seq_max(raw)
        self.n_pack: int = min(memory.ubatch(settings), n_batch)  # larger graphs cost more than they save
        self.info = VectorInfo(
            pooling=pooling,
            n_out=lib.llama_model_n_cls_out(handle) if is_rank else lib.llama_model_n_embd_out(handle),
            labels=_labels(handle) if is_rank else (),
            has_head=is_rank and _has_head(settings),
            is_pooling_open=pooling == "none"
            and wanted_pooling(settings) is None
            and _own_pooling(settings, handle) == "-1",
            n_text_max=min(n_text_max, lib.llama_n_ctx(raw)) if is_split else min(n_text_max, n_batch),
            is_split=is_split,
            n_mixed_max=min(n_text_max, lib.llama_n_ctx(raw)) if is_causal and not is_rank else 0,
        )
        self._n_embd: int = lib.llama_model_n_embd_inp(handle)

    def use(self, adapters: Sequence[tuple[int, float]]) -> int:
        """Set the adapters, by number and scale, for the next texts. Return 0, or an error code."""
        uses = ffi.new("llamad_adapter_use[]", list(adapters))
        return int(lib.llamad_embed_with(self.context, uses, len(adapters)))

    def set_threads(self, n_threads: int, n_threads_batch: int) -> None:
        """Set the threads for texts of one token, and for all others; 0 changes nothing."""
        lib.llamad_context_threads(self.context, n_threads, n_threads_batch)

    def compute(self, memory: memoryview, lengths: list[int]) -> int:
        """Compute the embeddings of each text: one, or one per token without pooling. The memory has the token ids
        (int32) of all texts in a row; the embeddings (float) are written after them. Releases the GIL. Return
        llama.cpp's code. If it is not 0, there are no embeddings, and the context was rebuilt."""
        n_tokens = sum(lengths)
        n_rows = n_tokens if self.info.pooling == "none" else len(lengths)
        if len(memory) < 4 * (n_tokens + n_rows * self.info.n_out):
            return int(lib.LLAMAD_E_REFUSED)
        code: int = lib.llamad_embed(
            self.context,
            ffi.from_buffer("int32_t[]", memory[: 4 * n_tokens]),
            ffi.new("int32_t[]", lengths),
            len(lengths),
            self.info.n_out,
            ffi.from_buffer("float[]", memory[4 * n_tokens :], require_writable=True),
        )
        if code != 0:
            lib.llamad_context_rebuild(self.context)
        return code

    def compute_mixed(self, memory: memoryview, n_tokens: int, runs: list[MediaRun]) -> int:
        """Compute the embeddings of one text with images or sound; returns what compute() returns. The ids at the
        positions of images or sound mean nothing."""
        n_rows = n_tokens if self.info.pooling == "none" else 1
        if len(memory) < 4 * (n_tokens + n_rows * self.info.n_out):
            return int(lib.LLAMAD_E_REFUSED)
        native = ffi.new("llamad_run[]", len(runs))
        for one, run in zip(native, runs, strict=True):
            rows = ffi.from_buffer("char[]", blobs.borrowed(run.blob))
            end = max(run.rows_at + run.n_rows * self._n_embd * 4, run.grid_at + 3 * run.n_rows * 4)
            if run.rows_at < 0 or end > len(rows):
                return int(lib.LLAMAD_E_REFUSED)
            one.data = ffi.cast("float *", rows + run.rows_at)
            one.grid = ffi.NULL if run.grid_at < 0 else ffi.cast("int32_t *", rows + run.grid_at)
            one.first, one.n, one.n_pos = run.first, run.n_rows, run.n_pos
            one.is_non_causal = run.is_non_causal
        code: int = lib.llamad_embed_mixed(
            self.context,
            ffi.from_buffer("int32_t[]", memory[: 4 * n_tokens]),
            n_tokens,
            native,
            len(runs),
            self.info.n_out,
            ffi.from_buffer("float[]", memory[4 * n_tokens :], require_writable=True),
        )
        if code != 0:
            lib.llamad_context_rebuild(self.context)
        return code

    def close(self) -> None:
        if self.context is not None:
            lib.llamad_context_close(self.context)
            self.context = None
