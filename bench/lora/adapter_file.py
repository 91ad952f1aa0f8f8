"""Owns the GGUF file of an adapter: what llama.cpp reads, from pairs of matrices."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from bench.errors import BenchError

Weights = np.ndarray[Any, np.dtype[Any]]

# The matrices of a block that are changed: all that multiply.
PARTS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


def architecture(path: Path) -> str:
    """Of a model's file, which an adapter must name too."""
    import gguf

    try:
        return str(gguf.GGUFReader(path).fields["general.architecture"].contents())
    except (ValueError, KeyError):
        raise BenchError(f"{path} is no model in GGUF") from None


def shapes(path: Path) -> dict[str, tuple[int, int]]:
    """Rows and columns of every matrix that is changed."""
    import gguf

    wanted = tuple(f".{part}.weight" for part in PARTS)
    tensors = (
        one for one in gguf.GGUFReader(path).tensors if one.name.endswith(wanted) and len(one.shape) == 2
    )
    found = {one.name: (int(one.shape[1]), int(one.shape[0])) for one in tensors}
    if not found:
        raise BenchError(f"{path} has none of the matrices {', '.join(PARTS)}")
    return found


def write(path: Path, arch: str, alpha: float, pairs: Iterable[tuple[str, Weights, Weights]]) -> None:
    """Of each matrix (rows, columns): A has the shape (rank, columns), B (rows, rank). B A times alpha / rank is added
    to it."""
    import gguf

    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    writer = gguf.GGUFWriter(partial, arch)
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    for name, a, b in pairs:
        writer.add_tensor(f"{name}.lora_a", np.ascontiguousarray(a))
        writer.add_tensor(f"{name}.lora_b", np.ascontiguousarray(b))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.rename(path)
