"""Logits with LoRA adapters over HTTP, beside the same model and adapters in NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.live_daemon import Live
from support.models import media_reference
from support.models.tiny_adapters import delta, pairs, write_lora
from support.models.tiny_kv_models import EXACT, write_model

SEEDS = (31, 32)
# Every kind of matrix that an adapter changes.
NAMES = [
    *(f"blk.0.attn_{part}.weight" for part in ("q", "k", "v", "output")),
    *(f"blk.1.ffn_{part}.weight" for part in ("gate", "up", "down")),
]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: Any) -> str:
    return write_model(tmp_path_factory.mktemp("logits") / "llama.gguf", "llama", np.float32)


@pytest.fixture(scope="module")
def server(llama: str) -> Iterator[Live]:
    folder = Path(llama).parent
    files = [write_lora(folder / f"{seed}.gguf", llama, seed, names=NAMES) for seed in SEEDS]
    flags = ("-np", "1", "-c", "512", "--no-warmup", "--lora-init-without-apply", "--lora", ",".join(files))
    with Live(*flags, *EXACT, model=llama) as live:
        yield live


@pytest.mark.parametrize("scales", [(0.0, 0.0), (1.0, 0.0), (0.5, -0.75)])
def test_logits_are_as_numpy_has_them(llama: str, server: Live, scales: tuple[float, float]) -> None:
    deltas: dict[str, Any] = {}
    for seed, scale in zip(SEEDS, scales, strict=True):
        for name, (a, b) in pairs(llama, seed, NAMES).items():
            deltas[name] = deltas.get(name, 0.0) + delta(name, a, b, scale)
    prompt = server.client.post("/tokenize", {"content": "Once upon a time", "add_special": True}).json[
        "tokens"
    ]
    body = {"prompt": prompt, "n_predict": 1, "n_probs": 40, "temperature": 0.0}
    body["lora"] = [{"id": i, "scale": scale} for i, scale in enumerate(scales)]
    top = server.client.post("/completion", body).json["completion_probabilities"][0]["top_logprobs"]
    wanted = media_reference.logprobs(llama, [np.array(prompt)], deltas)
    plain = media_reference.logprobs(llama, [np.array(prompt)])
    ids = [one["id"] for one in top]
    assert ids[:3] == [int(one) for one in np.argsort(-wanted)[:3]]
    assert np.allclose([one["logprob"] for one in top], wanted[ids], atol=1e-3)
    assert bool(np.abs(plain - wanted).max() > 0.1) == any(scales)
