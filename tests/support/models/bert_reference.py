"""BERT twice over the same weights: as a GGUF for llama.cpp, and as a forward pass in NumPy with a tokenizer of its
own, written from the paper's description and not from llama.cpp."""

from __future__ import annotations

import math
import unicodedata
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from recipe import cache
from support.models.bert_weights import Weights

VERSION = 1  # of the conversion; a new one makes new files
CLS, SEP, UNK = 101, 102, 100
EPSILON = 1e-12
N_CTX = 512
_POOLINGS = {"mean": 1, "cls": 2, "unknown": 77}
_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_PARTS = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
_OTHERS = {
    "embeddings.word_embeddings.weight": "token_embd.weight",
    "embeddings.position_embeddings.weight": "position_embd.weight",
    "embeddings.token_type_embeddings.weight": "token_types.weight",
    "embeddings.LayerNorm.weight": "token_embd_norm.weight",
    "embeddings.LayerNorm.bias": "token_embd_norm.bias",
}
_HEAD = {
    "pooler.dense.weight": "cls.weight",
    "pooler.dense.bias": "cls.bias",
    "classifier.weight": "cls.output.weight",
    "classifier.bias": "cls.output.bias",
}


def cached_gguf(weights: Weights) -> str:
    """The model's file, written once."""
    final = cache.make_dir(cache.root() / "models") / f"{weights.name}.test-{VERSION}.gguf"
    with cache.locked(cache.lock_of(final), weights.name):
        if not final.is_file():
            partial = final.with_name(final.name + ".partial")
            write_gguf(partial, weights)
            partial.rename(final)
    return str(final)


def write_gguf(path: Path, weights: Weights) -> str:
    tensors = weights.tensors
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_name(weights.name)
    writer.add_context_length(N_CTX)
    writer.add_embedding_length(weights.n_embd)
    writer.add_block_count(weights.n_layer)
    writer.add_feed_forward_length(tensors["encoder.layer.0.intermediate.dense.bias"].size)
    writer.add_head_count(weights.n_head)
    writer.add_layer_norm_eps(EPSILON)
    writer.add_causal_attention(False)
    writer.add_uint32("bert.pooling_type", _POOLINGS[weights.pooling])
    if weights.labels:
        writer.add_classifier_output_labels(list(weights.labels))
    _add_vocabulary(writer, weights)
    has_head = "classifier.weight" in tensors
    for name, tensor in tensors.items():
        target = _OTHERS.get(name) or (_HEAD.get(name) if has_head else None)
        if name.startswith("encoder.layer."):
            layer, part = name.removeprefix("encoder.layer.").split(".", 1)
            part, kind = part.rsplit(".", 1)
            target = f"blk.{layer}.{_PARTS[part]}.{kind}"
        if target is not None:
            is_matrix = tensor.ndim == 2 and target.startswith("blk.")
            writer.add_tensor(
                target, np.ascontiguousarray(tensor, np.float16) if is_matrix else _float32(tensor)
            )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


def _float32(tensor: Any) -> Any:
    return np.ascontiguousarray(tensor, np.float32)


def _add_vocabulary(writer: gguf.GGUFWriter, weights: Weights) -> None:
    """Pieces that begin a word carry U+2581, those inside one lose their ##."""
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_type_count(2)
    types, pieces = [], []
    for piece in weights.vocab:
        is_special = piece in _SPECIALS
        types.append(gguf.TokenType.CONTROL if is_special else gguf.TokenType.NORMAL)
        pieces.append(
            piece
            if is_special
            else piece[2:]
            if piece.startswith("##")
            else "\N{LOWER ONE EIGHTH BLOCK}" + piece
        )
    writer.add_token_list(pieces)
    writer.add_token_types(types)
    writer.add_bos_token_id(CLS)
    writer.add_eos_token_id(SEP)
    writer.add_sep_token_id(SEP)
    writer.add_unk_token_id(UNK)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)  # which makes a pair [CLS] a [SEP] b [SEP]
    writer.add_add_sep_token(False)


class Tokenizer:
    """WordPiece: the longest piece that fits, from the left."""

    def __init__(self, weights: Weights) -> None:
        self.ids = {piece: i for i, piece in enumerate(weights.vocab)}

    def words(self, text: str) -> list[str]:
        text = unicodedata.normalize("NFD", text.lower())
        out = []
        for char in text:
            kind = unicodedata.category(char)
            if kind == "Mn" or char in "\0\ufffd" or (kind.startswith("C") and char not in "\t\n\r"):
                continue
            alone = kind.startswith("P") or (ord(char) < 128 and kind.startswith("S")) or _is_ideograph(char)
            out.append(f" {char} " if alone else char)
        return "".join(out).split()

    def plain(self, text: str) -> list[int]:
        return [token for word in self.words(text) for token in self._pieces(word)]

    def one(self, text: str) -> list[int]:
        return [CLS, *self.plain(text), SEP]

    def pair(self, a: str, b: str) -> list[int]:
        return [CLS, *self.plain(a), SEP, *self.plain(b), SEP]

    def _pieces(self, word: str) -> list[int]:
        found, first = [], 0
        while first < len(word):
            for last in range(len(word), first, -1):
                piece = self.ids.get(("##" if first else "") + word[first:last])
                if piece is not None:
                    break
            else:
                return [UNK]
            found.append(piece)
            first = last
        return found


def _is_ideograph(char: str) -> bool:
    return 0x4E00 <= ord(char) <= 0x9FFF or 0x3400 <= ord(char) <= 0x4DBF


def _normed(x: Any, tensors: dict[str, Any], name: str) -> Any:
    mean, spread = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(spread + EPSILON) * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]


def _linear(x: Any, tensors: dict[str, Any], name: str) -> Any:
    return x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]


_erf = np.vectorize(math.erf, otypes=[np.float64])


def hidden(weights: Weights, tokens: list[int]) -> Any:
    """The last layer's row for each token."""
    tensors, n = weights.tensors, len(tokens)
    x = tensors["embeddings.word_embeddings.weight"][tokens].astype(np.float64)
    x = x + tensors["embeddings.position_embeddings.weight"][:n]
    x = _normed(x + tensors["embeddings.token_type_embeddings.weight"][0], tensors, "embeddings.LayerNorm")
    size = x.shape[1] // weights.n_head
    for i in range(weights.n_layer):
        base = f"encoder.layer.{i}."
        q, k, v = (
            _linear(x, tensors, f"{base}attention.self.{part}").reshape(n, -1, size).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(size)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = (shares / shares.sum(axis=-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(n, -1)
        x = _normed(
            x + _linear(mixed, tensors, f"{base}attention.output.dense"),
            tensors,
            f"{base}attention.output.LayerNorm",
        )
        up = _linear(x, tensors, f"{base}intermediate.dense")
        up = up * 0.5 * (1.0 + _erf(up / math.sqrt(2.0)))
        x = _normed(x + _linear(up, tensors, f"{base}output.dense"), tensors, f"{base}output.LayerNorm")
    return x


def scores(weights: Weights, tokens: list[int]) -> Any:
    """What the head says of a text."""
    pooled = np.tanh(_linear(hidden(weights, tokens)[:1], weights.tensors, "pooler.dense"))
    return _linear(pooled, weights.tensors, "classifier")[0]


def seeded(
    *, n_layer: int = 2, n_embd: int = 32, n_vocab: int = 200, labels: tuple[str, ...] = ()
) -> Weights:
    """A tiny BERT of random weights, with a head where there are labels: for tests in which only sizes matter."""
    random = np.random.default_rng(11)

    def linear(name: str, n_out: int, n_in: int) -> dict[str, Any]:
        values = random.standard_normal((n_out, n_in)).astype(np.float32) / math.sqrt(n_in)
        return {f"{name}.weight": values, f"{name}.bias": np.zeros(n_out, np.float32)}

    def norm(name: str) -> dict[str, Any]:
        return {f"{name}.weight": np.ones(n_embd, np.float32), f"{name}.bias": np.zeros(n_embd, np.float32)}

    tensors = norm("embeddings.LayerNorm")
    for name, n in (("word", n_vocab), ("position", N_CTX), ("token_type", 2)):
        tensors[f"embeddings.{name}_embeddings.weight"] = random.standard_normal((n, n_embd)).astype(
            np.float32
        )
    for i in range(n_layer):
        base = f"encoder.layer.{i}."
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            tensors |= linear(f"{base}attention.{part}", n_embd, n_embd)
        tensors |= norm(f"{base}attention.output.LayerNorm") | norm(f"{base}output.LayerNorm")
        tensors |= linear(f"{base}intermediate.dense", 4 * n_embd, n_embd)
        tensors |= linear(f"{base}output.dense", n_embd, 4 * n_embd)
    if labels:
        tensors |= linear("pooler.dense", n_embd, n_embd) | linear("classifier", len(labels), n_embd)
    vocab = [f"w{i}" for i in range(n_vocab)]
    for i, piece in ((0, "[PAD]"), (UNK, "[UNK]"), (CLS, "[CLS]"), (SEP, "[SEP]"), (103, "[MASK]")):
        vocab[i] = piece
    return Weights("seeded", vocab, tensors, 2, "mean", labels)
