"""Contexts of tiny models in this process, whose memory a test drives by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llamad._llama import ffi, lib
from llamad.engine.llama_log import LlamaLog
from llamad.engine.testing.memory_driver import MemoryDriver


@dataclass(frozen=True)
class Sizes:
    """n_ctx: cells of a unified cache, or those of all streams together. n_rollback: tokens that a recurrent memory can
    remove again."""

    n_ctx: int
    n_seqs: int
    n_batch: int
    n_ubatch: int
    unified: bool
    swa_full: bool
    n_rollback: int = 0


class TinyModel:
    """An open model. Its contexts must be closed before it."""

    def __init__(self, path: str) -> None:
        assert lib.llamad_backends_open() == 0
        self.log = LlamaLog()  # else llama.cpp writes to stderr
        state = ffi.new("llamad_load_state *")
        state.n_threads = 1
        self.handle = lib.llamad_model_open(path.encode(), lib.llama_model_default_params(), state)
        self.log.drain()
        assert self.handle != ffi.NULL

    def close(self) -> None:
        lib.llamad_model_close(self.handle)
        self.log.drain()


class TinyContext:
    """A context with one thread. Without `flash` attention the values in states are transposed."""

    def __init__(self, model: TinyModel, sizes: Sizes, cache: str = "f16", flash: bool = True) -> None:
        params = lib.llama_context_default_params()
        params.n_ctx = sizes.n_ctx
        params.n_batch = sizes.n_batch
        params.n_ubatch = sizes.n_ubatch
        params.n_seq_max = sizes.n_seqs
        params.n_rs_seq = sizes.n_rollback
        params.n_threads = params.n_threads_batch = 1
        kinds = (lib.LLAMA_FLASH_ATTN_TYPE_DISABLED, lib.LLAMA_FLASH_ATTN_TYPE_ENABLED)
        params.flash_attn_type = kinds[flash]
        params.type_k = params.type_v = getattr(lib, f"GGML_TYPE_{cache.upper()}")
        params.kv_unified = sizes.unified
        params.swa_full = sizes.swa_full
        self._model = model
        self._context: Any = lib.llamad_context_open(model.handle, params)
        model.log.drain()
        assert self._context != ffi.NULL
        table = int(ffi.cast("uintptr_t", lib.llamad_llama_table()))
        self.driver = MemoryDriver(table, int(ffi.cast("uintptr_t", self._context)), sizes.n_batch)

    def _memory(self) -> Any:
        return lib.llama_get_memory(lib.llamad_context_get(self._context))

    def pos_max(self, seq: int) -> int:
        return int(lib.llama_memory_seq_pos_max(self._memory(), seq))

    def copy_range(self, src: int, dst: int, p0: int, p1: int) -> None:
        """Copy the tokens at positions p0 to p1 - 1. With streams llama.cpp aborts."""
        lib.llama_memory_seq_cp(self._memory(), src, dst, p0, p1)

    def __enter__(self) -> TinyContext:
        return self

    def __exit__(self, *_: object) -> None:
        lib.llamad_context_close(self._context)
        self._model.log.drain()
