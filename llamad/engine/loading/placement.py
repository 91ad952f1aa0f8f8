"""Decides which tensors are not placed as llama.cpp does by default: those of the flags, and the token embedding table.

Runs in the opening thread, before the model is loaded, so it must import little.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from llamad._llama import ffi, lib
from llamad.engine.loading import memory

if TYPE_CHECKING:
    from llamad.flags.settings import ModelSettings

EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
DENSE = r"\.ffn_(up|down|gate)\."

# llama.cpp keeps the token embedding table on the CPU. Every step then begins with a graph split that runs there, and
# waits until its embeddings are copied. With the table on the GPU, a step has one split. The results are the same.
INPUTS = r"^(token_embd|token_types|position_embd)\.weight$"


class Unplaced(Exception):
    """One line that says why tensors cannot be placed as requested."""


class Placing:
    """llama.cpp's list of patterns, and what it points to. It must live until the model is loaded."""

    def __init__(self, rows: list[tuple[str, Any]]) -> None:
        self._patterns = [ffi.new("char[]", pattern.encode()) for pattern, _ in rows]
        self._rows = ffi.new("struct llama_model_tensor_buft_override[]", len(rows) + 1)
        for row, pattern, (_, buffer) in zip(self._rows, self._patterns, rows, strict=False):
            row.pattern, row.buft = pattern, buffer
        self.pointer = self._rows if rows else ffi.NULL


def patterns(settings: ModelSettings) -> list[tuple[str, str]]:
    """Return the overrides of the flags: (pattern, buffer), in the order in which llama.cpp tries them."""
    overrides: list[tuple[str, str]] = list(settings.override_tensor)
    if settings.cpu_moe:
        overrides.append((EXPERTS, "CPU"))
    overrides += [(rf"blk\.{i}{EXPERTS}", "CPU") for i in range(settings.n_cpu_moe)]
    overrides += [(rf"blk\.{i}{DENSE}", "CPU") for i in range(settings.n_cpu_ffn)]
    return overrides


def placing(settings: ModelSettings) -> Placing:
    """Return all overrides in llama.cpp's form. Raises Unplaced."""
    buffers = _buffers()
    rows = []
    for pattern, buffer in patterns(settings):
        if buffer not in buffers:
            raise Unplaced(
                f"--override-tensor {pattern}={buffer}: there is no such buffer; this machine has {', '.join(buffers)}"
            )
        rows.append((pattern, buffers[buffer]))
    device = _inputs_device(settings)
    if device is not None:
        rows.append((INPUTS, lib.ggml_backend_dev_buffer_type(device)))
    return Placing(rows)


def _buffers() -> dict[str, Any]:
    buffers = {}
    for i in range(lib.ggml_backend_dev_count()):
        buffer = lib.ggml_backend_dev_buffer_type(lib.ggml_backend_dev_get(i))
        if buffer != ffi.NULL:
            buffers[ffi.string(lib.ggml_backend_buft_name(buffer)).decode()] = buffer
    return buffers


def _inputs_device(settings: ModelSettings) -> Any:
    """Return the GPU for the token embedding table, or None. It must be the only GPU and compute everything. llama.cpp
    cannot tell which types an RPC worker's device can look up."""
    if settings.llama_api_only or settings.rpc or settings.inputs_on_device is False:
        return None
    gpus = memory.gpus(settings)
    if len(gpus) != 1 or settings.n_gpu_layers == 0 or settings.devices == ("none",):
        return None
    (name, free), *_ = gpus.items()
    device = lib.ggml_backend_dev_by_name(name.encode())
    shape = ffi.new("llamad_gguf_shape *")
    if lib.llamad_gguf_shape_of(os.fsencode(settings.model), device, shape) != 0:
        return None
    goes_there = settings.inputs_on_device or fits(settings, shape, free)
    return device if shape.device_looks_up and goes_there else None


def fits(settings: ModelSettings, shape: Any, free: int) -> bool:
    """Return whether the whole model goes to the GPU and leaves enough memory free there for the table."""
    if 0 <= settings.n_gpu_layers <= shape.n_layer:
        return False
    n_head = max(1, shape.n_head)
    size = shape.n_embd // n_head
    row = memory.layer_bytes(
        settings,
        (shape.n_head_kv or n_head) * (shape.n_k or size),
        (shape.n_head_kv or n_head) * (shape.n_v or size),
    )
    cache = memory.context_cells(settings, shape.n_ctx_train) * shape.n_layer * row
    buffers = memory.UBATCH_DEVICE * (shape.n_vocab + 16 * shape.n_embd) * 4
    return bool(free - shape.bytes - cache - buffers >= memory.SPARE_BYTES)
