"""Tiny LoRA adapters and control vectors with seeded random weights, and a model into which adapters are merged."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from llamad.engine.loading.gguf_head import Head

Weights = npt.NDArray[np.float32]

RANK, ALPHA = 4, 8.0
CHANGED = ("blk.0.attn_q.weight", "blk.0.ffn_down.weight", "blk.1.attn_v.weight")


@functools.cache
def shapes(model: str) -> dict[str, tuple[int, ...]]:
    """Of the model's tensors, as NumPy has them: rows first."""
    head = Head(model)  # gguf's reader would take seconds for the vocabulary
    head.close()
    return {name: tuple(reversed(one.dims)) for name, one in head.tensors.items()}


def pairs(
    model: str, seed: int, names: Sequence[str] = CHANGED, scale: float = 0.3
) -> dict[str, tuple[Weights, Weights]]:
    """A and B of each tensor, as the file holds them."""
    random, tensors = np.random.default_rng(seed), {}
    for name in names:
        n_out, n_in = shapes(model)[name]
        a_shape, b_shape = (
            ((n_out, RANK), (n_in, RANK)) if "token_embd" in name else ((RANK, n_in), (n_out, RANK))
        )
        a = random.standard_normal(a_shape, dtype=np.float32) * np.float32(scale)
        b = random.standard_normal(b_shape, dtype=np.float32) * np.float32(scale)
        tensors[name] = a, b
    return tensors


def write_adapter(
    path: Path,
    tensors: dict[str, Weights],
    *,
    arch: str = "llama",
    kind: str = "adapter",
    type: str = "lora",
    alpha: Any = ALPHA,
    invocation: Sequence[int] = (),
) -> str:
    writer = gguf.GGUFWriter(path, arch)
    writer.add_string("general.type", kind)
    writer.add_string("adapter.type", type)
    add_alpha = writer.add_float32 if isinstance(alpha, float) else writer.add_uint32
    add_alpha("adapter.lora.alpha", alpha)
    if invocation:
        writer.add_key_value(
            "adapter.alora.invocation_tokens",
            list(invocation),
            gguf.GGUFValueType.ARRAY,
            gguf.GGUFValueType.UINT32,
        )
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


def write_lora(path: Path, model: str, seed: int, **more: Any) -> str:
    """A sound one."""
    tensors = {}
    for name, (a, b) in pairs(model, seed, more.pop("names", CHANGED), more.pop("scale", 0.3)).items():
        tensors |= {f"{name}.lora_a": a, f"{name}.lora_b": b}
    return write_adapter(path, tensors, **more)


def delta(name: str, a: Weights, b: Weights, scale: float) -> Weights:
    """What the adapter adds to the tensor."""
    factor = np.float32(scale * ALPHA / RANK)
    product = a @ b.T if "token_embd" in name else b @ a
    return factor * product.astype(np.float32)


def write_merged(path: Path, model: str, adapters: Sequence[tuple[int, float]]) -> str:
    """The model with adapters (seed and scale) in its weights, which are F16."""
    added: dict[str, Weights] = {}
    for seed, scale in adapters:
        for name, (a, b) in pairs(model, seed).items():
            added[name] = added.get(name, np.float32(0)) + delta(name, a, b, scale)
    data, head = bytearray(Path(model).read_bytes()), Head(model)
    for name, more in added.items():
        at = head.data_at + head.tensors[name].offset
        weights = np.frombuffer(data, np.float16, more.size, at).reshape(more.shape)
        merged = (weights.astype(np.float32) + more).astype(np.float16).tobytes()
        del weights
        data[at : at + len(merged)] = merged
    head.close()
    path.write_bytes(data)
    return str(path)


def write_control_vector(path: Path, n_embd: int, layers: Sequence[int], seed: int = 9) -> str:
    random = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "controlvector")
    for layer in layers:
        writer.add_tensor(f"direction.{layer}", random.standard_normal(n_embd, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)
