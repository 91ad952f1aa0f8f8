"""What tiny projectors and a tiny llama compute, in NumPy from their files: rows of an image or a sound, and the logits
behind a prompt of such rows and tokens, with adapters too."""

from __future__ import annotations

import numpy as np
from gguf import GGUFReader

from support.models.tiny_kv_models import N_HEAD, N_HEAD_DIM, N_HEAD_KV, N_LAYER
from support.models.tiny_projectors import IMAGE, N_BINS, N_EMBD, PATCH

Array = np.ndarray
EPS, SOUND_EPS, ROPE_BASE = 1e-5, 1e-6, 10_000.0


def tensors(path: str) -> dict[str, Array]:
    return {one.name: np.array(one.data, np.float64) for one in GGUFReader(path).tensors}


def rms_norm(x: Array, eps: float) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def _half(x: Array) -> Array:
    """Rounded as ggml does where it computes a convolution, or looks a function up in a table."""
    return x.astype(np.float16).astype(np.float64)


def _quick_gelu(x: Array) -> Array:
    x = _half(x)
    return _half(x / (1 + np.exp(-1.702 * x)))


def image_rows(path: str, pixels: Array) -> Array:
    """janus_pro without blocks, of an image that needs no scaling: patches, then two layers."""
    assert pixels.shape == (IMAGE, IMAGE, 3)
    t, n = tensors(path), IMAGE // PATCH
    x = (pixels / 255.0 - 0.5) / 0.5
    patches = x.reshape(n, PATCH, n, PATCH, 3).transpose(0, 2, 4, 1, 3).reshape(n * n, -1)
    hidden = _half(patches) @ _half(t["v.patch_embd.weight"].reshape(N_EMBD, -1)).T
    hidden = hidden @ t["mm.0.weight"].T + t["mm.0.bias"]
    return _quick_gelu(hidden) @ t["mm.1.weight"].T + t["mm.1.bias"]


def sound_rows(path: str, samples: Array) -> Array:
    """gemma4ua: frames of samples, the last filled up with silence, normed and projected."""
    frames = np.zeros((-(-len(samples) // N_BINS), N_BINS))
    frames.reshape(-1)[: len(samples)] = samples
    return rms_norm(frames, SOUND_EPS) @ tensors(path)["mm.a.input_projection.weight"].T


def _rope(x: Array) -> Array:
    """Neighbouring pairs of each head turn by their position."""
    angles = np.arange(len(x))[:, None] * ROPE_BASE ** (-np.arange(0, N_HEAD_DIM, 2) / N_HEAD_DIM)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    even, odd = x[..., ::2], x[..., 1::2]
    return np.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(x.shape)


def _attention(t: dict[str, Array], at: str, x: Array) -> Array:
    n = len(x)
    q = _rope((x @ t[f"{at}.attn_q.weight"].T).reshape(n, N_HEAD, N_HEAD_DIM))
    k = _rope((x @ t[f"{at}.attn_k.weight"].T).reshape(n, N_HEAD_KV, N_HEAD_DIM))
    v = (x @ t[f"{at}.attn_v.weight"].T).reshape(n, N_HEAD_KV, N_HEAD_DIM)
    k, v = (one.repeat(N_HEAD // N_HEAD_KV, axis=1) for one in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(N_HEAD_DIM) + np.triu(np.full((n, n), -np.inf), 1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", weights, v).reshape(n, -1) @ t[f"{at}.attn_output.weight"].T


def logprobs(path: str, prompt: list[Array], deltas: dict[str, Array] | None = None) -> Array:
    """Behind a prompt of tokens (one dimension) and rows (two), as the model's own distribution; `deltas` are added to
    its matrices."""
    t = tensors(path)
    for name, delta in (deltas or {}).items():
        t[name] = t[name] + delta
    x = np.concatenate([part if part.ndim == 2 else t["token_embd.weight"][part] for part in prompt])
    for i in range(N_LAYER):
        at = f"blk.{i}"
        x = x + _attention(t, at, rms_norm(x, EPS) * t[f"{at}.attn_norm.weight"])
        h = rms_norm(x, EPS) * t[f"{at}.ffn_norm.weight"]
        gate = h @ t[f"{at}.ffn_gate.weight"].T
        h = gate / (1 + np.exp(-gate)) * (h @ t[f"{at}.ffn_up.weight"].T)
        x = x + h @ t[f"{at}.ffn_down.weight"].T
    logits = rms_norm(x[-1], EPS) * t["output_norm.weight"] @ t["token_embd.weight"].T
    scores: Array = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
    return scores
