"""Tiny GGUF projectors with seeded random weights: images or sound become rows for a model of the same width."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

N_EMBD, N_FF, IMAGE, PATCH, N_BINS = 16, 32, 32, 8, 640
BLOCK = ("attn_q", "attn_k", "attn_v", "attn_out")


class _Maker:
    def __init__(self, path: Path, kind: str, n_out: int) -> None:
        self.writer = gguf.GGUFWriter(path, "clip")
        self.random = np.random.default_rng(3)
        side = "audio" if kind == "gemma4ua" else "vision"
        self.writer.add_bool(f"clip.has_{side}_encoder", True)
        self.writer.add_string("clip.projector_type", kind)
        numbers = {
            "embedding_length": N_EMBD,
            "feed_forward_length": N_FF,
            "block_count": int(kind == "qwen2vl_merger"),
            "projection_dim": n_out,
            "image_size": IMAGE,
            "patch_size": PATCH,
            "attention.head_count": 2,
        }
        for name, value in numbers.items():
            self.writer.add_uint32(f"clip.{side}.{name}", value)
        self.writer.add_float32(f"clip.{side}.attention.layer_norm_epsilon", 1e-5)

    def noise(self, name: str, *shape: int, scale: float = 0.2) -> None:
        values = self.random.standard_normal(shape, dtype=np.float32) * np.float32(scale)
        self.writer.add_tensor(name, values)

    def linear(self, name: str, n_out: int, n_in: int, scale: float = 0.2) -> None:
        self.noise(f"{name}.weight", n_out, n_in, scale=scale)
        self.noise(f"{name}.bias", n_out)

    def close(self) -> None:
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def write_projector(path: Path, kind: str, n_out: int) -> str:
    """janus_pro: causal, 16 rows for an image. gemma3: rows that see each other, between two texts. qwen2vl_merger:
    as many rows as the image has patches of 16 pixels, in a grid. gemma4ua: sound, a row for 640 samples. hunyuanvl and
    deepseek4v: can be opened, no more."""
    maker = _Maker(path, kind, n_out)
    if kind == "gemma4ua":
        maker.writer.add_uint32("clip.audio.num_mel_bins", N_BINS)
        maker.noise("mm.a.input_projection.weight", n_out, N_BINS)
        maker.close()
        return str(path)
    maker.writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    maker.writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    maker.noise("v.patch_embd.weight", N_EMBD, 3, PATCH, PATCH)
    if kind == "janus_pro":
        maker.linear("mm.0", N_EMBD, N_EMBD)
        maker.linear("mm.1", n_out, N_EMBD, scale=1.0)
    elif kind == "gemma3":
        maker.writer.add_uint32("clip.vision.projector.scale_factor", 1)
        maker.noise("mm.input_projection.weight", N_EMBD, n_out)
        maker.noise("mm.soft_emb_norm.weight", N_EMBD)
    elif kind == "qwen2vl_merger":
        maker.noise("v.patch_embd.weight.1", N_EMBD, 3, PATCH, PATCH)
        for part in BLOCK:
            maker.linear(f"v.blk.0.{part}", N_EMBD, N_EMBD)
        maker.linear("v.blk.0.ffn_up", N_FF, N_EMBD)
        maker.linear("v.blk.0.ffn_down", N_EMBD, N_FF)
        for part in ("ln1", "ln2"):
            maker.noise(f"v.blk.0.{part}.weight", N_EMBD)
            maker.noise(f"v.blk.0.{part}.bias", N_EMBD)
        maker.linear("mm.0", 4 * N_EMBD, 4 * N_EMBD)
        maker.linear("mm.2", n_out, 4 * N_EMBD)
    elif kind == "hunyuanvl":
        for part in ("mm.0", "mm.2"):
            maker.linear(part, N_EMBD, N_EMBD)
        maker.linear("mm.model.fc", n_out, N_EMBD)
        for part in (
            "mm.pre_norm.weight",
            "mm.post_norm.weight",
            "mm.image_begin",
            "mm.image_end",
            "v.image_newline",
        ):
            maker.noise(part, n_out)
    elif kind == "deepseek4v":
        maker.writer.add_uint32("clip.vision.projector.scale_factor", 2)
        maker.writer.add_uint32("clip.vision.image_min_pixels", IMAGE * IMAGE)
        maker.linear("mm.1", N_EMBD, 4 * N_EMBD)
        maker.linear("mm.2", n_out, N_EMBD)
        for part in ("v.image_newline", *(f"v.token_embd.img_{one}" for one in ("start", "end", "pad"))):
            maker.noise(part, n_out)
    maker.close()
    return str(path)
