"""Opens the draft model and its context beside the served model, and checks that both have the same vocabulary.

Runs in the engine's main thread. A draft model is loaded like any other, with settings that are made of those of the
served one; only its context differs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from llamad._llama import ffi, lib
from llamad.base import model_file
from llamad.engine.loading import thread_pools
from llamad.engine.loading.gguf_archs import NO_MODELS
from llamad.engine.loading.gguf_head import Malformed, read_head
from llamad.engine.loading.gguf_rules import parts_of
from llamad.engine.loading.model import LoadedModel, check_generation, context_params
from llamad.engine.loading.opening import Loading, open_model, vet
from llamad.engine.loading.thread_pools import Pools
from llamad.engine.loading.threads import compute_threads
from llamad.protocol.errors import LoadError

if TYPE_CHECKING:
    from llamad.flags.settings import ModelSettings

# llama.cpp's rules: vocabularies may differ by this many tokens at the end, and in the texts of the first ones.
SIZE_DIFFERENCE_MAX = 128
FIRST_COMPARED = 5
# Settings of the served model that a draft model does not have.
_WITHOUT: dict[str, Any] = {
    "override_kv": (),
    "n_cpu_ffn": 0,
    "lora": (),
    "control_vector": (),
    "mmproj": None,
    "embeddings": False,
    "reranking": False,
    "wants_vectors": False,
    "pooling": None,
    "attention": None,
    "swa_full": True,  # what it has drafted wrongly is removed at any token
    "kv_unified_per_slot": 0,
    "grp_attn_n": 1,
    "model_draft": None,
}


def draft_settings(settings: ModelSettings, n_ctx: int) -> ModelSettings | None:
    """Return the settings of the draft model for a context of n_ctx tokens, or None if nothing is drafted with one."""
    if settings.model_draft is None or settings.llama_api_only or settings.grp_attn_n > 1:
        return None

    def other(value: int | None, default: int | None) -> int | None:
        return default if value is None else value

    names = type(settings).__struct_fields__
    has_own = bool(settings.devices_draft)
    n_batch_threads = settings.n_threads_draft if settings.n_threads_draft else settings.n_threads_batch
    changes = {name: value for name, value in _WITHOUT.items() if name in names} | {
        "model": settings.model_draft,
        "n_ctx": n_ctx,
        "n_gpu_layers": settings.n_gpu_layers_draft,
        "devices": settings.devices_draft or settings.devices,
        "split_mode": "layer" if len(settings.devices_draft) == 1 else settings.split_mode,
        "tensor_split": () if has_own else settings.tensor_split,
        "override_tensor": settings.override_tensor_draft,
        "cpu_moe": settings.cpu_moe_draft,
        "n_cpu_moe": settings.n_cpu_moe_draft,
        "cache_type_k": settings.cache_type_k_draft,
        "cache_type_v": settings.cache_type_v_draft,
        "n_threads": settings.n_threads_draft or settings.n_threads,
        "n_threads_batch": settings.n_threads_batch_draft or n_batch_threads,
        "cpu_strict": other(settings.cpu_strict_draft, settings.cpu_strict),
        "prio": other(settings.prio_draft, settings.prio),
        "poll": other(settings.poll_draft, settings.poll),
        "cpu_strict_batch": other(settings.cpu_strict_batch_draft, settings.cpu_strict_batch),
        "prio_batch": other(settings.prio_batch_draft, settings.prio_batch),
        "poll_batch": other(settings.poll_batch_draft, settings.poll_batch),
    }
    if settings.cpu_mask_draft or settings.cpu_range_draft:
        changes |= {"cpu_mask": settings.cpu_mask_draft, "cpu_range": settings.cpu_range_draft}
        changes |= {"cpu_mask_batch": (), "cpu_range_batch": ()}
    if settings.cpu_mask_batch_draft or settings.cpu_range_batch_draft:
        changes |= {
            "cpu_mask_batch": settings.cpu_mask_batch_draft,
            "cpu_range_batch": settings.cpu_range_batch_draft,
        }
    return msgspec.structs.replace(settings, **changes)


class Unsuitable(LoadError):
    """The draft model cannot be used. The message begins with the flag."""

    def __init__(self, settings: ModelSettings, reason: str) -> None:
        super().__init__(f"-md {settings.model}: {reason}")


def vet_draft(settings: ModelSettings) -> None:
    """Check the draft model's file before llama.cpp reads it, if there is one. Raises LoadError."""
    draft = draft_settings(settings, settings.n_ctx)
    if draft is None:
        return
    refusal = model_file.refusal(draft.model, "-md")
    if refusal is not None:
        raise LoadError(refusal)
    head = read_head(draft.model)
    try:
        arch = head.keys.get("general.architecture")
        is_head = isinstance(arch, bytes) and NO_MODELS.get(arch.decode("utf-8", "replace")) == "a draft head"
        # A file with the heads of a model has no other layers.
        is_head |= any(".nextn." in name for name in head.tensors) and not any(
            name.startswith("blk.0.") for name in head.tensors
        )
    except Malformed as error:
        raise error.at(draft.model) from None
    finally:
        head.close()
    if is_head:
        raise Unsuitable(
            draft,
            "it is a draft head (MTP, EAGLE-3, DFlash), which llamad does not use yet; use a whole model",
        )
    vet(draft, Loading())


class LoadedDraft:
    """An open draft model with its context. close() frees both; the engine's thread must have ended before."""

    def __init__(
        self, handle: Any, context: Any, n_vocab: int, pools: Pools | None, warnings: Sequence[str]
    ) -> None:
        raw = lib.llamad_context_get(context)
        self._handle = handle
        self.context = context
        self.pools = pools
        self.warnings = warnings  # about its flags that have no effect here
        self.n_vocab = n_vocab  # tokens below this are the same in both models
        self.n_batch: int = lib.llama_n_batch(raw)
        # Without rotary positions there are no more than those that it was trained for.
        self.n_ctx_max: int = lib.llama_n_ctx_seq(raw)
        if lib.llama_model_rope_type(handle) == lib.LLAMA_ROPE_TYPE_NONE:
            self.n_ctx_max = min(self.n_ctx_max, lib.llama_model_n_ctx_train(handle))

    @property
    def context_address(self) -> int:
        return int(ffi.cast("uintptr_t", self.context))

    def close(self) -> None:
        lib.llamad_context_close(self.context)
        lib.llamad_model_close(self._handle)


def _check_kind(settings: ModelSettings, handle: Any) -> None:
    if lib.llama_model_has_encoder(handle) or not lib.llama_model_has_decoder(handle):
        raise Unsuitable(settings, "it has an encoder; a draft model must be a decoder-only model")
    if lib.llama_model_is_recurrent(handle) or lib.llama_model_is_hybrid(handle):
        raise Unsuitable(
            settings,
            "it is a recurrent or hybrid model, whose memory cannot remove tokens that were drafted wrongly; use one"
            " with attention only",
        )


def _piece(vocab: Any, token: int) -> str:
    return repr(ffi.string(lib.llama_vocab_get_text(vocab, token)).decode("utf-8", "replace")[:40])


def _difference(served: Any, draft: Any) -> str:
    """Return how two vocabularies differ, by llama.cpp's rules; "" if tokens mean the same in both."""
    kinds = [lib.llama_vocab_type(vocab) for vocab in (served, draft)]
    if kinds[0] != kinds[1]:
        return "it has another type of tokenizer"
    for name, adds, of in (
        ("BOS", lib.llama_vocab_get_add_bos, lib.llama_vocab_bos),
        ("EOS", lib.llama_vocab_get_add_eos, lib.llama_vocab_eos),
    ):
        if adds(served) != adds(draft):
            return f"only {'the served model' if adds(served) else 'it'} adds the {name} token to prompts"
        if adds(served) and of(served) != of(draft):
            return f"its {name} token is {of(draft)}, that of the served model is {of(served)}"
    n_served, n_draft = lib.llama_vocab_n_tokens(served), lib.llama_vocab_n_tokens(draft)
    if abs(n_served - n_draft) > SIZE_DIFFERENCE_MAX:
        return f"it has {n_draft} tokens, the served model has {n_served}"
    token = lib.llamad_vocab_difference(served, draft, FIRST_COMPARED)
    if token >= 0:
        return f"its token {token} is {_piece(draft, token)}, that of the served model is {_piece(served, token)}"
    return ""


def check_vocabulary(settings: ModelSettings, served: Any, draft: Any) -> None:
    """Raise LoadError unless the tokens of two models mean the same; the settings are the draft model's."""
    difference = _difference(lib.llama_model_get_vocab(served), lib.llama_model_get_vocab(draft))
    if difference:
        raise Unsuitable(
            settings, f"its vocabulary does not fit: {difference}; use a smaller model of the same family"
        )


def draft_part(settings: ModelSettings) -> float:
    """Return the draft model's part of the bytes of both models, whose files were checked; 0 without a draft model."""
    draft = draft_settings(settings, settings.n_ctx)
    if draft is None:
        return 0
    n_served, n_draft = (sum(map(os.path.getsize, parts_of(one.model))) for one in (settings, draft))
    return n_draft / (n_served + n_draft)


def open_draft(settings: ModelSettings, loading: Loading, is_survey: bool = False) -> Any:
    """Return the handle of a draft model that was vetted; the settings are its own. Raises LoadError."""
    loading.is_vetted = True
    try:
        return open_model(settings, compute_threads(settings.n_threads), loading, is_survey)
    except LoadError as error:
        raise LoadError(f"the draft model: {error}") from None


def open_draft_context(settings: ModelSettings, handle: Any) -> Any:
    """Return a context for drafting. Raises LoadError."""
    _check_kind(settings, handle)
    try:
        check_generation(settings, handle)
    except LoadError as error:
        raise LoadError(f"the draft model: {error}") from None
    params = context_params(settings, compute_threads(settings.n_threads))
    params.n_outputs_max = settings.n_parallel
    context = lib.llamad_context_open(handle, params)
    if context == ffi.NULL:
        raise LoadError(
            "cannot create a context for the draft model; lower -c or -np, the log above has llama.cpp's reason"
        )
    if lib.llama_get_memory(lib.llamad_context_get(context)) == ffi.NULL:
        lib.llamad_context_close(context)
        raise Unsuitable(settings, "it is an embedding model, which cannot generate text")
    return context


def _pools(settings: ModelSettings, draft: ModelSettings) -> tuple[Pools | None, list[str]]:
    """Return the thread pools of the draft model, and warnings about flags that have no effect. Raises LoadError."""
    refusals = []
    if lib.llamad_has_openmp() and (draft.prio, draft.prio_batch) != (settings.prio, settings.prio_batch):
        refusals.append("--prio-draft has no effect: OpenMP's threads compute both models")
        draft = msgspec.structs.replace(draft, prio=settings.prio, prio_batch=settings.prio_batch)
    requested = thread_pools.pools(draft, compute_threads(draft.n_threads))
    pools, warnings = thread_pools.permitted(requested) if requested is not None else (None, [])
    return pools, refusals + warnings


def load_draft(settings: ModelSettings, served: LoadedModel, loading: Loading) -> LoadedDraft | None:
    """Open the draft model of these settings for a served model. Return None if nothing is drafted with one. Raises
    LoadError."""
    draft = draft_settings(settings, served.n_ctx)
    if draft is None or not served.can_generate or not (served.can_share or served.n_rollback):
        return None
    pools, warnings = _pools(settings, draft)
    handle = open_draft(draft, loading)
    context = None
    try:
        check_vocabulary(draft, served.handle, handle)
        context = open_draft_context(draft, handle)
        thread_pools.attach(context, pools)
    except BaseException:
        if context is not None:
            lib.llamad_context_close(context)
        lib.llamad_model_close(handle)
        raise
    models = (served.handle, handle)
    n_vocab = min(lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(one)) for one in models)
    warnings = [one for one in warnings if one not in served.warnings]
    return LoadedDraft(handle, context, n_vocab, pools, warnings)
