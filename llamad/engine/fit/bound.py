"""Decides from a model's file alone whether it certainly fits, so that most starts need not measure anything.

Every figure is an upper bound: caches are computed as if all layers saw the whole context, and buffers as if attention
were not fused.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from llamad.engine.fit.measure import adapter_bytes, tensor_bytes
from llamad.engine.loading import embedding_context, memory
from llamad.engine.loading.draft import draft_settings
from llamad.engine.loading.gguf_head import Array, Head, Malformed
from llamad.engine.loading.gguf_rules import other_parts

if TYPE_CHECKING:
    from llamad.flags.settings import ModelSettings

MIB = 1 << 20
# Bytes of recurrent state for each slot, layer and element of a hidden vector; no known model has more.
STATE_BYTES = 2048
# Hidden vectors that a graph holds at once for each token, including those of feed-forward layers and experts.
HIDDEN_VECTORS = 96
REPACKED_PART = 8  # AMX stores 38 bytes for 34 of a Q8_0; no other layout of a CPU adds more
PROJECTOR_BYTES = 1 << 30  # compute buffers of a projector, in addition to its file
INTEGERS = (4, 5)  # GGUF's uint32 and int32
LAYERS_MAX = 4096


def margins_of(settings: ModelSettings, n_devices: int) -> list[int]:
    """Return the bytes that stay free on each device, or on the host if there is none."""
    n = max(1, n_devices)
    given = [one * MIB for one in settings.fit_target]
    return given * n if len(given) == 1 else (given + given[-1:] * n)[:n]


def surely_fits(settings: ModelSettings) -> bool:
    """Return whether the whole model would fit into each of its devices alone, or into host memory if it has none, and
    leave the margin free; on a device also the memory for a larger batch."""
    try:
        needed = bound(settings)
    except (Malformed, OSError):
        return False
    uses_devices = settings.n_gpu_layers != 0 and settings.devices != ("none",)
    free = list(memory.gpus(settings).values()) if uses_devices else []
    if settings.devices_draft:
        return False  # the draft model may be on another device
    if settings.rpc:
        return False  # other clients may use the free memory that a worker reports
    margins = margins_of(settings, len(free))
    if not free:
        return needed + margins[0] <= memory.host_free()
    if not _is_whole(settings) and needed > memory.host_free():
        return False
    return needed + max(*margins, memory.SPARE_BYTES) <= min(free)


def _is_whole(settings: ModelSettings) -> bool:
    """Return whether everything is on the devices, as far as the flags decide."""
    is_split = settings.cpu_moe or settings.n_cpu_moe or settings.n_cpu_ffn or settings.override_tensor
    return settings.n_gpu_layers < 0 and settings.kv_offload and not is_split


def bound(settings: ModelSettings) -> int:
    """Return an upper bound of the bytes that the model takes. Raises Malformed, OSError."""
    head = Head(settings.model)
    keys, heads = _numbers(head), [head, *(Head(path) for path in other_parts(settings.model, head))]
    tensors = {name: tensor_bytes(tensor) for one in heads for name, tensor in one.tensors.items()}
    n_weights = sum(tensors.values())
    if "output.weight" not in tensors:
        n_weights += tensors.get("token_embd.weight", 0)  # repacked, the table is in memory twice
    if settings.repack:
        n_weights += n_weights // REPACKED_PART
    for one in heads:
        one.close()
    n_files = sum(os.path.getsize(path) for path in ([settings.mmproj] if settings.mmproj else ()))
    beside = adapter_bytes(settings) + n_files + (PROJECTOR_BYTES if settings.mmproj else 0)
    n_contexts = 2 if settings.wants_vectors else 1
    draft = draft_settings(settings, settings.n_ctx or keys.get("context_length", 0))
    beside += bound(draft) if draft is not None else 0
    return n_weights + beside + n_contexts * _context_bound(settings, keys)


def _numbers(head: Head) -> dict[str, int]:
    """Return the numeric keys of the model's architecture, without its name; the greatest if there is one for each
    layer."""
    arch = head.keys.get("general.architecture")
    prefix = arch.decode("utf-8", "replace") + "." if isinstance(arch, bytes) else ""
    numbers = {}
    for key, value in head.keys.items():
        if not key.startswith(prefix):
            continue
        if isinstance(value, Array) and value.kind in INTEGERS and value.n <= LAYERS_MAX:
            value = max(head.elements(value), default=0)
        if isinstance(value, int):
            numbers[key.removeprefix(prefix)] = int(value)
    tokens = head.keys.get("tokenizer.ggml.tokens")
    numbers["vocab_size"] = max(numbers.get("vocab_size", 0), tokens.n if isinstance(tokens, Array) else 0)
    for tensor in head.tensors.values():
        if tensor.name == "token_embd.weight":
            numbers["vocab_size"] = max(numbers["vocab_size"], *tensor.dims[1:])
    return numbers


def _context_bound(settings: ModelSettings, keys: dict[str, int]) -> int:
    n_layers, n_embd = keys.get("block_count", 0), keys.get("embedding_length", 0)
    n_head, n_ctx_train = keys.get("attention.head_count", 0), keys.get("context_length", 0)
    if not (n_layers and n_embd and n_ctx_train):
        raise Malformed("does not state its shape")
    n_head_kv = keys.get("attention.head_count_kv", n_head) or n_head
    n_k, n_v = (
        n_head_kv * max(keys.get(f"attention.{name}_length", 0), n_embd // max(1, n_head))
        for name in ("key", "value")
    )
    n_cells = memory.context_cells(settings, n_ctx_train)
    cache = n_cells * n_layers * memory.layer_bytes(settings, max(n_k, 1), max(n_v, 1))
    n_states = settings.n_parallel * (1 + memory.n_rollback(settings, settings.n_batch))
    states = n_states * n_layers * n_embd * STATE_BYTES
    n_ubatch = max(memory.ubatch(settings), memory.UBATCH_DEVICE if settings.n_ubatch < 0 else 0)
    if settings.wants_vectors:
        n_ubatch = max(n_ubatch, min(settings.n_batch, n_ctx_train))
    n_rows = n_ubatch + max(settings.n_parallel, embedding_context.SEQUENCES_MAX)
    n_seen = n_cells if settings.kv_unified else n_cells // settings.n_parallel
    per_token = 4 * (HIDDEN_VECTORS * n_embd + 2 * max(1, n_head) * n_seen)
    n_outputs = n_rows if settings.wants_vectors else memory.n_outputs(settings)
    return cache + states + n_rows * per_token + 2 * 4 * n_outputs * keys["vocab_size"]
