"""A tiny Llama-shaped GGUF with seeded random weights and the default model's tokenizer: for tests in which the
text does not matter and time does."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from support.models.gguf_keys import Unchanged, Writer, read_keys

N_EMBD, N_LAYER, N_HEAD, N_HEAD_KV, N_FF = 64, 2, 4, 2, 128


@functools.cache
def tokenizer_of(path: str) -> dict[str, tuple[Any, gguf.GGUFValueType]]:
    keys = {key: one for key, one in read_keys(path).items() if key.startswith("tokenizer.")}
    return {
        key: (Unchanged(value) if isinstance(value, list) else value, kind)
        for key, (value, kind) in keys.items()
    }


@functools.cache
def matrices(n_vocab: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)

    def matrix(rows: int, columns: int) -> np.ndarray:
        values = random.standard_normal((rows, columns), dtype=np.float32) / np.sqrt(columns)
        return values.astype(np.float16)

    n_kv = N_EMBD // N_HEAD * N_HEAD_KV
    tensors = {"token_embd": matrix(n_vocab, N_EMBD)}
    for i in range(N_LAYER):
        for part, rows, columns in (
            ("attn_q", N_EMBD, N_EMBD),
            ("attn_k", n_kv, N_EMBD),
            ("attn_v", n_kv, N_EMBD),
            ("attn_output", N_EMBD, N_EMBD),
            ("ffn_gate", N_FF, N_EMBD),
            ("ffn_up", N_FF, N_EMBD),
            ("ffn_down", N_EMBD, N_FF),
        ):
            tensors[f"blk.{i}.{part}"] = matrix(rows, columns)
    return tensors


def write_tiny(
    path: Path,
    tokenizer_from: str,
    n_ctx: int = 16384,
    name: str = "tiny",
    tokenizer: dict[str, Any] | None = None,
) -> str:
    """`tokenizer` has other values for some of the tokenizer's keys, or more keys."""
    writer = Writer(path, "llama")
    fields = tokenizer_of(tokenizer_from)
    more = {key: (value, gguf.GGUFValueType.get_type(value)) for key, value in (tokenizer or {}).items()}
    for key, (value, kind) in (fields | more).items():
        if kind == gguf.GGUFValueType.ARRAY:
            writer.add_array(key, value)
        else:
            writer.add_key_value(key, value, kind)
    n_vocab = len(fields["tokenizer.ggml.tokens"][0])
    writer.add_name(name)
    writer.add_context_length(n_ctx)
    writer.add_embedding_length(N_EMBD)
    writer.add_block_count(N_LAYER)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_head_count_kv(N_HEAD_KV)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(N_EMBD // N_HEAD)
    writer.add_vocab_size(n_vocab)
    norms = [
        "output_norm",
        *(f"blk.{i}.{part}" for i in range(N_LAYER) for part in ("attn_norm", "ffn_norm")),
    ]
    for tensor, values in matrices(n_vocab).items():
        writer.add_tensor(f"{tensor}.weight", values)
    for tensor in norms:
        writer.add_tensor(f"{tensor}.weight", np.ones(N_EMBD, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)
