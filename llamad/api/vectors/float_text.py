"""Encodes vectors as JSON and base64 without a Python object per number. Pure functions; any thread. Releases the
GIL."""

from __future__ import annotations

from base64 import b64encode

from llamad._llama import ffi, lib
from llamad.protocol.model_info import Embeddings


def to_json(row: Embeddings) -> bytes:
    """Return one row as a JSON array; each number has the fewest digits that round-trip to the same 32-bit float."""
    import numpy as np

    row = np.ascontiguousarray(row, np.float32)
    buffer = bytearray(row.size * lib.LLAMAD_FLOAT_CHARS + 2)
    n = lib.llamad_floats_json(ffi.from_buffer("float[]", row), row.size, ffi.from_buffer(buffer))
    return bytes(memoryview(buffer)[:n])


def to_base64(row: Embeddings) -> bytes:
    """Return one row as base64 of its little-endian 32-bit floats."""
    import numpy as np

    return b64encode(np.ascontiguousarray(row, "<f4").data)


def normalize(rows: Embeddings, kind: int) -> Embeddings:
    """Scale each row. `kind` is -1: no scaling, 0: the maximum becomes 32760, 1: the taxicab norm becomes 1, 2: the
    Euclidean norm becomes 1, p: the p-norm becomes 1."""
    if kind < 0:
        return rows
    import numpy as np

    size = np.abs(rows.astype(np.float64))
    if kind == 0:
        norm = size.max(axis=1, keepdims=True) / 32760.0
    elif kind == 1:
        norm = size.sum(axis=1, keepdims=True)
    elif kind == 2:
        norm = np.sqrt((size * size).sum(axis=1, keepdims=True))
    else:
        # Divide by the maximum first, because a high power of a number far from 1 would overflow.
        largest = size.max(axis=1, keepdims=True)
        shares = np.divide(size, largest, out=np.zeros_like(size), where=largest > 0)
        norm = largest * (shares**kind).sum(axis=1, keepdims=True) ** (1.0 / kind)
    scaled: Embeddings = np.divide(rows, norm, out=np.zeros(rows.shape), where=norm > 0).astype(np.float32)
    return scaled
