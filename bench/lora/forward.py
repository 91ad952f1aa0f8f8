"""The forward pass of the llama architecture with an adapter in PyTorch, as llama.cpp computes it.

It only needs PyTorch and NumPy, and nothing of the bench, so that it runs in any Python that has them. The weights are
those of the GGUF, whose rows of Q and K are ordered so that RoPE rotates neighbouring pairs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

Tensor = Any  # torch.Tensor, which has no name if PyTorch is not installed


@dataclass(frozen=True, slots=True)
class Shape:
    n_layer: int
    n_head: int
    n_head_kv: int
    n_head_dim: int
    rms_eps: float
    rope_base: float


@dataclass(frozen=True, slots=True)
class Model:
    shape: Shape
    weights: dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Adapter:
    """A and B of each matrix by its name; B A times `factor` is added to the matrix."""

    a: dict[str, Tensor]
    b: dict[str, Tensor]
    factor: float


def load(path: Path, device: str) -> tuple[Model, Any]:
    """Return the model that `export` wrote, and all of its arrays."""
    arrays = np.load(path)
    shape = Shape(**json.loads(str(arrays["shape"])))
    names = [name for name in arrays.files if name.endswith(".weight")]
    weights = {name: torch.from_numpy(arrays[name].astype(np.float32)).to(device) for name in names}
    return Model(shape, weights), arrays


def new_adapter(model: Model, parts: list[str], rank: int, alpha: float, seed: int) -> Adapter:
    """Return a new adapter, whose B is zero, so that it changes nothing yet."""
    random = torch.Generator().manual_seed(seed)
    a: dict[str, Tensor] = {}
    b: dict[str, Tensor] = {}
    for name, weight in model.weights.items():
        if name.startswith("blk.") and name.split(".")[2] in parts:
            rows, columns = weight.shape
            start = torch.randn((rank, columns), generator=random) / columns**0.5
            a[name] = start.to(weight.device).requires_grad_()
            b[name] = torch.zeros((rows, rank), device=weight.device, requires_grad=True)
    return Adapter(a, b, alpha / rank)


def _times(model: Model, adapter: Adapter | None, name: str, x: Tensor) -> Tensor:
    y = functional.linear(x, model.weights[name])
    if adapter is None or name not in adapter.a:
        return y
    more = functional.linear(functional.linear(x, adapter.a[name]), adapter.b[name])
    return y + adapter.factor * more


def _norm(model: Model, name: str, x: Tensor) -> Tensor:
    scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + model.shape.rms_eps)
    return x * scale * model.weights[name]


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply RoPE: rotate neighbouring pairs of each head by their position."""
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


def _heads(x: Tensor, n_head: int) -> Tensor:
    """Return the values as (batch, head, position, dimension)."""
    n_batch, n_tokens, width = x.shape
    return x.view(n_batch, n_tokens, n_head, width // n_head).transpose(1, 2)


def _attention(model: Model, adapter: Adapter | None, at: str, x: Tensor, angles: Tensor) -> Tensor:
    shape = model.shape
    cos, sin = angles.cos(), angles.sin()
    q = _turned(_heads(_times(model, adapter, f"{at}.attn_q.weight", x), shape.n_head), cos, sin)
    k = _turned(_heads(_times(model, adapter, f"{at}.attn_k.weight", x), shape.n_head_kv), cos, sin)
    v = _heads(_times(model, adapter, f"{at}.attn_v.weight", x), shape.n_head_kv)
    n_each = shape.n_head // shape.n_head_kv  # query heads that share a KV head
    k, v = k.repeat_interleave(n_each, 1), v.repeat_interleave(n_each, 1)
    attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return _times(model, adapter, f"{at}.attn_output.weight", attended.transpose(1, 2).flatten(2))


def _feed_forward(model: Model, adapter: Adapter | None, at: str, x: Tensor) -> Tensor:
    gate = functional.silu(_times(model, adapter, f"{at}.ffn_gate.weight", x))
    up = _times(model, adapter, f"{at}.ffn_up.weight", x)
    return _times(model, adapter, f"{at}.ffn_down.weight", gate * up)


def logits(model: Model, adapter: Adapter | None, tokens: Tensor) -> Tensor:
    """Return the logits of every position. Texts are rows that are padded at their end, which no earlier token sees."""
    shape, weights = model.shape, model.weights
    device = tokens.device
    exponents = torch.arange(0, shape.n_head_dim, 2, device=device) / shape.n_head_dim
    positions = torch.arange(tokens.shape[1], device=device)
    angles = positions[:, None] * shape.rope_base ** (-exponents)
    x = weights["token_embd.weight"][tokens]
    for i in range(shape.n_layer):
        at = f"blk.{i}"
        x = x + _attention(model, adapter, at, _norm(model, f"{at}.attn_norm.weight", x), angles)
        x = x + _feed_forward(model, adapter, at, _norm(model, f"{at}.ffn_norm.weight", x))
    output = weights.get("output.weight", weights["token_embd.weight"])
    return functional.linear(_norm(model, "output_norm.weight", x), output)


def logprobs(model: Model, adapter: Adapter | None, tokens: Tensor) -> Tensor:
    """Return the logprobs of each token but the first, after the tokens before it."""
    values = functional.log_softmax(logits(model, adapter, tokens[:, :-1]), -1)
    return values.gather(-1, tokens[:, 1:, None]).squeeze(-1)
