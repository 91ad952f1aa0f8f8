"""Writes the GGUF file of an adapter from pairs of matrices."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from bench.errors import BenchError

Weights = np.ndarray[Any, np.dtype[Any]]

# The matrices of a block that an adapter changes.
PARTS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


def architecture(path: Path) -> str:
    """Return the architecture of a model's file, which an adapter must name, too."""
    import gguf

    try:
        return str(gguf.GGUFReader(path).fields["general.architecture"].contents())
    except (ValueError, KeyError):
        raise BenchError(f"{path} is not a model in GGUF") from None


def shapes(path: Path) -> dict[str, tuple[int, int]]:
    """Return the rows and columns of every matrix that is changed."""
    import gguf

    endings = tuple(f".{name}.weight" for name in PARTS)
    tensors = (
        one for one in gguf.GGUFReader(path).tensors if one.name.endswith(endings) and len(one.shape) == 2
    )
    sizes = {one.name: (int(one.shape[1]), int(one.shape[0])) for one in tensors}
    if not sizes:
        raise BenchError(f"{path} has none of the matrices {', '.join(PARTS)}")
    return sizes


def write(path: Path, arch: str, alpha: float, pairs: Iterable[tuple[str, Weights, Weights]]) -> None:
    """Write the file. For a matrix (rows, columns), A has the shape (rank, columns) and B (rows, rank). B A times
    alpha / rank is added to the matrix."""
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
