"""Writes a GGUF with a real model's shape, random weights, and a vocabulary, which is a real one or one of letters.

Speed does not depend on the weights, and no model can be fetched where this runs. Every matrix keeps the magnitude of
its input (deviation 1/sqrt(columns)), so that the logits have the requested deviation.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.errors import BenchError
from bench.gpu import letters, successors

BLOCK, BLOCK_BYTES = 32, 34  # Q8_0: a half-precision scale, then 32 signed bytes
POOL = 1 << 24  # random values that are used again and again, each time from another position
CHUNK = 1 << 26  # bytes written at once

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True, slots=True)
class Shape:
    n_embd: int
    n_layer: int
    n_head: int
    n_head_kv: int
    n_ff: int

    @property
    def n_embd_head(self) -> int:
        return self.n_embd // self.n_head


SHAPES = {
    "tiny": Shape(64, 2, 4, 2, 128),
    "260k": Shape(64, 5, 8, 4, 172),
    "135m": Shape(576, 30, 9, 3, 1536),
    "1b": Shape(2048, 16, 32, 8, 8192),
    "8b": Shape(4096, 32, 32, 8, 14336),
}
CONTEXT = 131072
N_VOCAB = 512  # tokens of the vocabulary of letters
TYPES: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "q8_0": np.dtype(np.uint8),
}


def shape_of(text: str) -> Shape:
    """Parse a shape: a name, or five numbers: width, layers, heads, KV heads, feed-forward."""
    return SHAPES[text] if text in SHAPES else Shape(*(int(word) for word in text.split(",")))


def matrices(shape: Shape, n_vocab: int) -> Iterator[tuple[str, int, int]]:
    """Yield the name, the rows and the columns of every matrix of the model."""
    n, n_kv, n_ff = shape.n_embd, shape.n_embd_head * shape.n_head_kv, shape.n_ff
    yield "token_embd.weight", n_vocab, n
    yield "output.weight", n_vocab, n
    for i in range(shape.n_layer):
        for part, rows, columns in (
            ("attn_q", n, n),
            ("attn_k", n_kv, n),
            ("attn_v", n_kv, n),
            ("attn_output", n, n),
            ("ffn_gate", n_ff, n),
            ("ffn_up", n_ff, n),
            ("ffn_down", n, n_ff),
        ):
            yield f"blk.{i}.{part}.weight", rows, columns


def norms(shape: Shape) -> Iterator[str]:
    yield "output_norm.weight"
    for i in range(shape.n_layer):
        yield f"blk.{i}.attn_norm.weight"
        yield f"blk.{i}.ffn_norm.weight"


class Weights:
    """Random bytes of a type, scaled for a number of columns."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind = kind
        self._random = np.random.default_rng(seed)
        self._values = self._random.standard_normal(POOL, dtype=np.float32)
        self._pools: dict[float, Bytes] = {}

    @property
    def unit(self) -> int:
        """Bytes that must stay together."""
        return BLOCK_BYTES if self.kind == "q8_0" else TYPES[self.kind].itemsize

    def n_bytes(self, n_values: int) -> int:
        if self.kind == "q8_0":
            return n_values // BLOCK * BLOCK_BYTES
        return n_values * TYPES[self.kind].itemsize

    def pool(self, deviation: float) -> Bytes:
        if deviation not in self._pools:
            self._pools[deviation] = self._make(deviation)
        return self._pools[deviation]

    def _make(self, deviation: float) -> Bytes:
        if self.kind != "q8_0":
            return (self._values * deviation).astype(TYPES[self.kind]).view(np.uint8)
        blocks = np.empty((POOL // BLOCK, BLOCK_BYTES), np.uint8)
        blocks[:, :2] = np.array([deviation / 32], np.float16).view(np.uint8)
        blocks[:, 2:] = (
            np.clip(self._values * 32, -127, 127).astype(np.int8).view(np.uint8).reshape(-1, BLOCK)
        )
        return blocks.reshape(-1)

    def chunks(self, n_values: int, deviation: float) -> Iterator[memoryview]:
        """Yield the bytes of a matrix in pieces."""
        pool, n_left = self.pool(deviation), self.n_bytes(n_values)
        while n_left:
            start = int(self._random.integers(len(pool) // self.unit // 2)) * self.unit
            chunk = pool[start : start + min(n_left, CHUNK)]
            n_left -= len(chunk)
            yield chunk.data


def add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--vocab", type=Path, help="a GGUF whose vocabulary is used (512 tokens of bytes, letters and pairs)")
    add("--out", type=Path, required=True, help="the file to write")
    add(
        "--shape",
        default="1b",
        help=f"{', '.join(SHAPES)}, or WIDTH,LAYERS,HEADS,KV_HEADS,FEED_FORWARD (1b)",
    )
    add("--type", choices=[*TYPES], default="f16")
    add("--n-vocab", type=int, help="fill the vocabulary up to this many tokens")
    add("--logit-deviation", type=float, default=1.0, help="standard deviation of the logits (1)")
    add(
        "--agree",
        type=float,
        help="each token is followed by a fixed one, in this share of all cases the one that follows it in every model"
        " with --agree: 1 for a model, less for its draft (any token)",
    )
    add("--seed", type=int, default=1)
    add("--again", action="store_true", help="write it even if it exists")


def main(flags: argparse.Namespace) -> int:
    if flags.out.is_file() and not flags.again:
        print(f"{flags.out} already exists, {flags.out.stat().st_size:,} bytes (--again writes it again)")
        return 0
    try:
        shape = shape_of(flags.shape)
    except (TypeError, ValueError):
        names = ", ".join(SHAPES)
        raise BenchError(f"--shape {flags.shape} is none of {names} nor five numbers with commas") from None
    flags.out.parent.mkdir(parents=True, exist_ok=True)
    partial = flags.out.with_name(flags.out.name + ".partial")
    n_vocab = write(
        partial, flags.vocab, shape, flags.type, flags.n_vocab, flags.logit_deviation, flags.seed, flags.agree
    )
    partial.rename(flags.out)
    print(f"{flags.out}: {flags.shape}, {flags.type}, {n_vocab:,} tokens, {flags.out.stat().st_size:,} bytes")
    return 0


def write(
    path: Path,
    vocab: Path | None,
    shape: Shape,
    kind: str,
    n_vocab: int | None,
    deviation: float,
    seed: int,
    agree: float | None = None,
) -> int:
    """Write the file; return the size of the vocabulary."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    if vocab is None:
        n_tokens = letters.add_tokenizer(gguf, writer, n_vocab or N_VOCAB)
    else:
        n_tokens = _copy_tokenizer(gguf, vocab, writer, n_vocab)
    writer.add_name(f"random {shape.n_embd}x{shape.n_layer}")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape.n_embd)
    writer.add_block_count(shape.n_layer)
    writer.add_feed_forward_length(shape.n_ff)
    writer.add_head_count(shape.n_head)
    writer.add_head_count_kv(shape.n_head_kv)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500000.0)
    writer.add_rope_dimension_count(shape.n_embd_head)
    writer.add_vocab_size(n_tokens)
    weights = Weights(kind, seed)
    types = gguf.GGMLQuantizationType
    raw = types[kind.upper()]
    for name, rows, columns in matrices(shape, n_tokens):
        n_bytes = weights.n_bytes(rows * columns)
        stored = (rows, columns // BLOCK * BLOCK_BYTES) if kind == "q8_0" else (rows, columns)
        writer.add_tensor_info(name, stored, TYPES[kind], n_bytes, raw)
    ones = np.ones(shape.n_embd, np.float32)
    for name in norms(shape):
        writer.add_tensor_info(name, ones.shape, ones.dtype, ones.nbytes, types.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    data = (
        _chunks(weights, shape, n_tokens, deviation)
        if agree is None
        else _fixed(weights, shape, n_tokens, agree, seed)
    )
    _write_data(writer, weights, shape, n_tokens, data)
    writer.close()
    return n_tokens


def _chunks(weights: Weights, shape: Shape, n_vocab: int, deviation: float) -> Iterator[Iterator[memoryview]]:
    for name, rows, columns in matrices(shape, n_vocab):
        own = (deviation if name == "output.weight" else 1.0) / columns**0.5
        yield weights.chunks(rows * columns, own)


def _fixed(
    weights: Weights, shape: Shape, n_vocab: int, agree: float, seed: int
) -> Iterator[Iterator[memoryview]]:
    """The same for a model in which each token is followed by a fixed one."""
    n_row = weights.n_bytes(shape.n_embd)
    embedding, output = successors.rows(n_vocab, weights.n_bytes(POOL) // weights.unit // 2, agree, seed)
    for name, rows, columns in matrices(shape, n_vocab):
        own = successors.deviation(name, columns)
        if name in ("token_embd.weight", "output.weight"):
            starts = embedding if name == "token_embd.weight" else output
            yield successors.chunks(weights.pool(own), starts * weights.unit, n_row)
        else:
            yield weights.chunks(rows * columns, own)


def _write_data(
    writer: Any, weights: Weights, shape: Shape, n_vocab: int, data: Iterator[Iterator[memoryview]]
) -> None:
    """Write the weights without the package, which would need each matrix as a whole in memory."""
    out = writer.fout[0]
    ones = np.ones(shape.n_embd, np.float32).tobytes()
    writer.write_padding(out, out.tell())
    for (_, rows, columns), chunks in zip(matrices(shape, n_vocab), data, strict=True):
        for chunk in chunks:
            out.write(chunk)
        writer.write_padding(out, weights.n_bytes(rows * columns))
    for _ in norms(shape):
        out.write(ones)
        writer.write_padding(out, len(ones))


def _copy_tokenizer(gguf: Any, vocab: Path, writer: Any, n_vocab: int | None) -> int:
    """Copy the vocabulary, and return its size. With `n_vocab` it is filled up with tokens that no text has."""
    reader = gguf.GGUFReader(vocab)
    n_tokens = len(reader.fields["tokenizer.ggml.tokens"].data)
    n_more = (n_vocab or n_tokens) - n_tokens
    if n_more < 0:
        raise BenchError(
            f"--n-vocab {n_vocab} is below the {n_tokens} of {vocab}: name a smaller vocabulary with --vocab"
        )
    more = {
        "tokenizer.ggml.tokens": [f"[unused {i}]" for i in range(n_more)],
        "tokenizer.ggml.token_type": [int(gguf.TokenType.UNUSED)] * n_more,
        "tokenizer.ggml.scores": [0.0] * n_more,
    }
    for name, field in reader.fields.items():
        if not name.startswith("tokenizer."):
            continue
        if field.types[0] == gguf.GGUFValueType.ARRAY:
            writer.add_array(name, field.contents() + more.get(name, []))
        else:
            writer.add_key_value(name, field.contents(), field.types[0])
    return n_tokens + n_more
