"""Adapters of a model that cannot generate: they act in its vectors, also when they come and go at run time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from support.live_daemon import Live
from support.models import bert_reference
from support.models.bert_weights import Weights
from support.models.tiny_adapters import write_lora

NAMES = ("blk.0.attn_q.weight", "blk.1.ffn_down.weight")


def test_an_encoder_takes_adapters_at_run_time(minilm: Weights, tmp_path: Path) -> None:
    model = bert_reference.cached_gguf(minilm)
    path = write_lora(tmp_path / "style.gguf", model, 3, names=NAMES, arch="bert")
    flags = ("--embedding", "-np", "2", "--alias", "base", "--lora-load-path", str(tmp_path))
    with Live(*flags, "--lora-load-max", "1", "--lora", f"fixed={path}", model=model) as live:

        def vector(name: str) -> list[float]:
            answer = live.client.post("/v1/embeddings", {"input": "A small house", "model": name}).json
            row: list[float] = answer["data"][0]["embedding"]
            return row

        def sent(action: str) -> int:
            body = {"lora_name": "style", "lora_path": "style.gguf"}
            return live.client.post(f"/v1/{action}_lora_adapter", body).status

        plain, fixed = vector("base"), vector("base:fixed")
        assert not np.allclose(plain, fixed, atol=1e-2)
        for _ in range(2):
            assert sent("load") == 200
            assert np.allclose(vector("base:style"), fixed, atol=1e-6)
            assert sent("unload") == 200
            assert np.allclose(vector("base"), plain, atol=1e-6)
