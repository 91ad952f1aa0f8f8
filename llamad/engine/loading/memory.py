"""Measures free memory, and computes sizes that follow from the flags: cells, physical batch, prompts in host memory.

Runs in the loader thread. Changes nothing; engine/fit/ decides what fits.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from llamad._llama import ffi, lib
from llamad.engine.loading import cgroups

if TYPE_CHECKING:
    from llamad.flags.settings import ModelSettings

# llama.cpp rounds a slot's context up to this many cells.
CELLS_STEP = 256

# The default physical batch size. On a GPU, launching a graph's kernels takes longer than computing 512 tokens; batches
# above 1,024 tokens are no faster.
UBATCH = 512
UBATCH_DEVICE = 1024
# The most prompt tokens of a step that may have logits: PROMPT_OUTPUTS_MAX of engine/scheduler/plan.pxd.
PROMPT_OUTPUTS = 64
# Tokens that a recurrent memory can remove again if they were drafted wrongly. For each of them, llama.cpp keeps one
# more state of every slot, which may be 100 MB large; with 3, a step can still give 4 tokens.
ROLLBACK_TOKENS = 3
# The bytes that must stay free on a GPU for a larger batch than UBATCH, because llama.cpp also allocates while it runs.
SPARE_BYTES = 2 << 30
# The limit on context checkpoints with --cache-ram 0.
CHECKPOINT_BYTES_MAX = 1 << 30


def meta(handle: Any, key: str) -> str | None:
    buffer = ffi.new("char[256]")
    n = lib.llama_model_meta_val_str(handle, key.encode(), buffer, 256)
    if n >= 256:
        buffer = ffi.new("char[]", n + 1)
        lib.llama_model_meta_val_str(handle, key.encode(), buffer, n + 1)
    return ffi.string(buffer).decode("utf-8", "replace") if n >= 0 else None


def head_size(handle: Any, which: str) -> int:
    """Return the elements of one head's K ("k") or V ("v")."""
    arch = meta(handle, "general.architecture") or ""
    named = meta(handle, f"{arch}.attention.{'key' if which == 'k' else 'value'}_length")
    if named is not None and named.isdigit():
        return int(named)
    return int(lib.llama_model_n_embd(handle) // max(1, lib.llama_model_n_head(handle)))


def context_cells(settings: ModelSettings, n_ctx_train: int) -> int:
    """Return the cells of the whole cache, as llama.cpp will allocate it."""
    n_ctx = settings.n_ctx or n_ctx_train
    if settings.kv_unified:
        return -(-n_ctx // CELLS_STEP) * CELLS_STEP
    return -(-(n_ctx // settings.n_parallel) // CELLS_STEP) * CELLS_STEP * settings.n_parallel


def window_cells(n_ctx: int, n_swa: int, n_slots: int, n_ubatch: int) -> int:
    """Return the cells of a sliding window's cache that all slots share, as llama.cpp will allocate it."""
    return -(-min(n_ctx, n_swa * n_slots + n_ubatch) // CELLS_STEP) * CELLS_STEP


def layer_bytes(settings: ModelSettings, n_k: int, n_v: int) -> int:
    """Return the bytes of one layer of one cell."""
    kinds = (
        getattr(lib, f"GGML_TYPE_{name.upper()}") for name in (settings.cache_type_k, settings.cache_type_v)
    )
    return int(sum(lib.ggml_row_size(kind, n) for kind, n in zip(kinds, (n_k, n_v), strict=True)))


def cell_bytes(settings: ModelSettings, handle: Any) -> int:
    """Return the bytes of one cell of the cache, over all layers."""
    n_k, n_v = (lib.llama_model_n_head_kv(handle) * head_size(handle, which) for which in "kv")
    return int(lib.llama_model_n_layer(handle) * layer_bytes(settings, n_k, n_v))


def ubatch(settings: ModelSettings) -> int:
    """Return the physical batch size, regardless of the device."""
    n = {-1: UBATCH, 0: settings.n_batch}.get(settings.n_ubatch, settings.n_ubatch)
    return min(n, settings.n_batch)


def n_outputs(settings: ModelSettings) -> int:
    """Return how many rows of logits a step may have, for which llama.cpp keeps memory: one for each slot, and those of
    prompts whose probabilities are requested."""
    return min(settings.n_batch, settings.n_parallel + PROMPT_OUTPUTS)


def n_rollback(settings: ModelSettings, n_ubatch: int) -> int:
    """Return how many of a slot's last tokens a recurrent memory should be able to remove again. llama.cpp ignores it
    for other memories, and for recurrent ones that cannot do that."""
    if not settings.wants_drafts or settings.llama_api_only or settings.grp_attn_n > 1:
        return 0
    n = ROLLBACK_TOKENS if settings.spec_fixed is None else settings.spec_fixed
    return max(0, min(n, n_ubatch - 2))  # it aborts if a ubatch is not larger than those tokens and one more


def device_ubatch(settings: ModelSettings, handle: Any, n_unloaded: int = 0) -> int:
    """Return the physical batch size on a GPU: larger, if the flags do not set it and there is memory. `n_unloaded` are
    the bytes of weights that are not there yet."""
    free = gpus(settings)
    if settings.n_ubatch >= 0 or not free or not settings.kv_offload:
        return ubatch(settings)
    # llama.cpp reserves memory for logits, on one GPU, and for attention unless it is fused.
    n_vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(handle))
    needed = n_outputs(settings) * n_vocab * 4 + (n_unloaded + sum(estimate(settings, handle))) // len(free)
    if settings.flash_attn == "off":
        n_cells = context_cells(settings, lib.llama_model_n_ctx_train(handle))
        n_cells = n_cells if settings.kv_unified else n_cells // settings.n_parallel
        needed += UBATCH_DEVICE * lib.llama_model_n_head(handle) * n_cells * 4
    if min(free.values()) - needed < SPARE_BYTES:
        return ubatch(settings)
    return min(UBATCH_DEVICE, settings.n_batch)


def estimate(settings: ModelSettings, handle: Any) -> tuple[int, int]:
    """Return the bytes of the KV cache and of the buffers. Recurrent states and compute buffers are rough guesses."""
    n_cells = context_cells(settings, lib.llama_model_n_ctx_train(handle))
    n_vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(handle))
    outputs = settings.n_parallel * n_vocab * 4
    compute = ubatch(settings) * lib.llama_model_n_embd(handle) * 4 * 16 + outputs
    return cell_bytes(settings, handle) * n_cells, outputs + compute


def is_mapped(settings: ModelSettings) -> bool:
    """Return whether weights on the host are pages of the mapped file."""
    return settings.load_mode in ("mmap", "mmap+mlock") or (settings.load_mode == "auto" and settings.mmap)


def host_free(*, with_files: bool = False) -> int:
    """Return the bytes that this process may still allocate: those of the machine, or fewer if a cgroup limits it. With
    `with_files`, all cached pages of files count as free in a cgroup, too, even those that were used lately."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            rows = dict(line.split(":", 1) for line in file)
        free = int(rows["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError):
        pass
    left = cgroups.memory_left(with_files=with_files)
    return free if left is None else min(free, left)


def cache_ram_bytes(settings: ModelSettings, n_held: int = 0) -> int:
    """Return the bytes for prompts in host memory (--cache-ram), of which the last engine's prompts have n_held
    already. They are 0 with self-extend, whose positions cannot be split again."""
    if settings.cache_ram < 0:
        return int(settings.grp_attn_n == 1) << 62
    if settings.cache_ram == 0 or settings.grp_attn_n > 1:
        return 0
    return min(settings.cache_ram << 20, max(0, (host_free() + n_held) // 2))


def checkpoint_bytes(settings: ModelSettings, n_held: int = 0) -> int:
    """Return the bytes for context checkpoints: half of --cache-ram, which includes them; without it, a share of the
    free memory."""
    if settings.cache_ram == 0:
        return min(CHECKPOINT_BYTES_MAX, max(0, host_free() // 4))
    return cache_ram_bytes(settings, n_held) // 2


def has_gpu() -> bool:
    """Return whether there is a GPU. llama.cpp's own llama_supports_gpu_offload() is true for every build with RPC."""
    kinds = (lib.GGML_BACKEND_DEVICE_TYPE_GPU, lib.GGML_BACKEND_DEVICE_TYPE_IGPU)
    devices = [lib.ggml_backend_dev_get(i) for i in range(lib.ggml_backend_dev_count())]
    return any(lib.ggml_backend_dev_type(device) in kinds for device in devices)


def computes(settings: ModelSettings, handle: Any) -> bool:
    """Return whether a GPU dominates the time of a step. Nearly all of the model must be on it, and it must be in this
    machine: over a network nothing arrives in microseconds, and a row of logits does not arrive at once."""
    return bool(
        has_gpu()
        and not settings.rpc
        and settings.devices != ("none",)
        and not (settings.cpu_moe or settings.n_cpu_moe or settings.n_cpu_ffn)
        and not any(placement.buffer == "CPU" for placement in settings.override_tensor)
        and (settings.n_gpu_layers < 0 or settings.n_gpu_layers >= lib.llama_model_n_layer(handle))
    )


def gpus(settings: ModelSettings) -> dict[str, int]:
    """Return the GPUs in use, and the free bytes of each."""
    free_bytes: dict[str, int] = {}
    for i in range(lib.ggml_backend_dev_count()):
        device = lib.ggml_backend_dev_get(i)
        name = ffi.string(lib.ggml_backend_dev_name(device)).decode()
        if lib.ggml_backend_dev_type(device) != lib.GGML_BACKEND_DEVICE_TYPE_GPU:
            continue
        if settings.devices and name not in settings.devices:
            continue
        free, total = ffi.new("size_t *"), ffi.new("size_t *")
        lib.ggml_backend_dev_memory(device, free, total)
        free_bytes[name] = free[0]
    return free_bytes
