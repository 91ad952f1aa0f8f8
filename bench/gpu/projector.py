"""Writes a GGUF with a real image encoder's shape and random weights: SigLIP's layers and Gemma 3's projector.

Its embeddings are as wide as the given text model's. They attend to each other and are between texts, as in Gemma 3.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.errors import BenchError

KIND = "gemma3"
EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class Shape:
    n_embd: int
    n_layer: int
    n_head: int
    n_ff: int
    image: int  # pixels of a side, to which every image is scaled
    patch: int
    merge: int  # patches of a side that become one embedding

    @property
    def n_patches(self) -> int:
        return (self.image // self.patch) ** 2

    @property
    def n_rows(self) -> int:
        return (self.image // self.patch // self.merge) ** 2


SHAPES = {
    "tiny": Shape(192, 12, 3, 768, 224, 16, 2),  # 49 rows
    "base": Shape(768, 12, 12, 3072, 512, 16, 2),  # 256 rows
    "so400m": Shape(1152, 27, 16, 4304, 896, 14, 4),  # 256 rows: Gemma 3 4B's own
}


def text_width(path: Path) -> int:
    """Return the width of a text model."""
    import gguf

    try:
        fields = gguf.GGUFReader(path).fields
        architecture = fields["general.architecture"].contents()
        return int(fields[f"{architecture}.embedding_length"].contents())
    except (ValueError, KeyError):
        raise BenchError(f"{path} is not a text model in GGUF") from None


class Writer:
    """Writes tensors. Matrices, in half precision, keep the magnitude of their input; norms are ones, biases zeros."""

    def __init__(self, path: Path, seed: int) -> None:
        import gguf

        self.gguf: Any = gguf.GGUFWriter(path, "clip")
        self._random = np.random.default_rng(seed)

    def noise(self, name: str, *shape: int, kind: type = np.float16) -> None:
        """Add a random tensor, scaled by its last dimensions, from which one output is computed."""
        values = self._random.standard_normal(shape, dtype=np.float32)
        self.gguf.add_tensor(name, (values / np.prod(shape[1:]) ** 0.5).astype(kind))

    def linear(self, name: str, n_out: int, n_in: int) -> None:
        self.noise(f"{name}.weight", n_out, n_in)
        self.gguf.add_tensor(f"{name}.bias", np.zeros(n_out, np.float32))

    def norm(self, name: str, n: int) -> None:
        self.gguf.add_tensor(f"{name}.weight", np.ones(n, np.float32))
        self.gguf.add_tensor(f"{name}.bias", np.zeros(n, np.float32))

    def close(self) -> None:
        self.gguf.write_header_to_file()
        self.gguf.write_kv_data_to_file()
        self.gguf.write_tensors_to_file()
        self.gguf.close()


def write(path: Path, shape: Shape, n_out: int, seed: int) -> None:
    out = Writer(path, seed)
    _add_keys(out.gguf, shape, n_out)
    n = shape.n_embd
    out.noise("v.patch_embd.weight", n, 3, shape.patch, shape.patch, kind=np.float32)
    out.gguf.add_tensor("v.patch_embd.bias", np.zeros(n, np.float32))
    out.noise("v.position_embd.weight", shape.n_patches, n, kind=np.float32)
    for i in range(shape.n_layer):
        for part in ("attn_q", "attn_k", "attn_v", "attn_out"):
            out.linear(f"v.blk.{i}.{part}", n, n)
        out.linear(f"v.blk.{i}.ffn_up", shape.n_ff, n)
        out.linear(f"v.blk.{i}.ffn_down", n, shape.n_ff)
        out.norm(f"v.blk.{i}.ln1", n)
        out.norm(f"v.blk.{i}.ln2", n)
    out.norm("v.post_ln", n)
    out.noise("mm.input_projection.weight", n, n_out)
    out.gguf.add_tensor("mm.soft_emb_norm.weight", np.ones(n, np.float32))
    out.close()


def _add_keys(writer: Any, shape: Shape, n_out: int) -> None:
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", KIND)
    writer.add_bool("clip.use_gelu", True)
    numbers = {
        "embedding_length": shape.n_embd,
        "feed_forward_length": shape.n_ff,
        "block_count": shape.n_layer,
        "projection_dim": n_out,
        "image_size": shape.image,
        "patch_size": shape.patch,
        "attention.head_count": shape.n_head,
        "projector.scale_factor": shape.merge,
    }
    for name, value in numbers.items():
        writer.add_uint32(f"clip.vision.{name}", value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", EPSILON)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])


def add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", type=Path, required=True, help="the text model's GGUF, whose width the embeddings get")
    add("--out", type=Path, required=True, help="the file to write")
    add("--shape", choices=[*SHAPES], default="base")
    add("--seed", type=int, default=1)
    add("--again", action="store_true", help="write it even if it exists")


def main(flags: argparse.Namespace) -> int:
    if flags.out.is_file() and not flags.again:
        print(f"{flags.out} already exists, {flags.out.stat().st_size:,} bytes (--again writes it again)")
        return 0
    shape, n_out = SHAPES[flags.shape], text_width(flags.model)
    flags.out.parent.mkdir(parents=True, exist_ok=True)
    partial = flags.out.with_name(flags.out.name + ".partial")
    write(partial, shape, n_out, flags.seed)
    partial.rename(flags.out)
    size = f"{flags.out.stat().st_size:,} bytes"
    print(f"{flags.out}: {flags.shape}, {shape.n_rows} rows an image, {n_out} wide, {size}")
    return 0
