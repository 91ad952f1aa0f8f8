"""Control vectors: reads directions from files, scales and sums them, and attaches them to contexts.

Runs in the engine's main thread, once, at load.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from llamad._llama import ffi, lib
from llamad.base import model_file
from llamad.engine.loading.gguf_head import Head, Malformed
from llamad.flags.types.values import ScaledFile
from llamad.protocol.errors import FileRefused

if TYPE_CHECKING:
    from llamad.flags.settings import ModelSettings

DIRECTION = re.compile(r"direction\.([1-9][0-9]{0,3})", re.ASCII)


def read(settings: ModelSettings, handle: Any) -> bytes:
    """Return the sum of the control vectors: n_embd floats for each layer from the second on; b"" if there are none.
    Raises FileRefused."""
    if not settings.control_vector:
        return b""
    import numpy as np

    n_embd, n_layer = lib.llama_model_n_embd(handle), lib.llama_model_n_layer(handle)
    total = np.zeros((n_layer, n_embd), np.float32)
    for file in settings.control_vector:
        refusal = model_file.refusal(file.path, "--control-vector")
        if refusal is not None:
            raise FileRefused(refusal)
        try:
            _add(total, file)
        except Malformed as error:
            raise FileRefused(f"{file.path} cannot be used as a control vector: it {error}") from None
    return total.tobytes()


def _add(total: Any, file: ScaledFile) -> None:
    import numpy as np

    n_layer, n_embd = total.shape
    head = Head(file.path)
    try:
        if not any(DIRECTION.fullmatch(name) for name in head.tensors):
            raise Malformed("has no direction.1 to direction.N")
        for name, tensor in head.tensors.items():
            match = DIRECTION.fullmatch(name)
            if match is None:
                raise Malformed(f"has the tensor {name}, which is not the direction of a layer")
            if tensor.dims != (n_embd,) or tensor.kind != lib.GGML_TYPE_F32:
                raise Malformed(f"has {name} of shape {tensor.dims}: {n_embd} float32 would fit this model")
            if int(match[1]) > n_layer:
                raise Malformed(f"has {name}; this model has {n_layer} layers")
            row = np.frombuffer(head.data, np.float32, n_embd, head.data_at + tensor.offset)
            if not np.isfinite(row).all():
                raise Malformed(f"has {name} with numbers that are not finite")
            total[int(match[1]) - 1] += np.float32(file.scale) * row
            del row  # otherwise the file would stay mapped
    finally:
        head.close()


def attach(settings: ModelSettings, handle: Any, context: Any, rows: bytes) -> None:
    """Attach the vectors to a context; it keeps them when it is rebuilt. Raises FileRefused."""
    if not rows:
        return
    n_layer = lib.llama_model_n_layer(handle)
    first, last = settings.control_vector_layer_range
    data = ffi.from_buffer("float[]", rows)
    if lib.llamad_context_control(context, data, n_layer, max(1, first), last if last > 0 else n_layer) != 0:
        raise FileRefused("--control-vector: llama.cpp refused it")
