"""Images and sound in several slots at once: each writes what llama-server writes alone. Tiny models with full
precision, so that texts hardly depend on the shapes in which they are computed."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.http_client import Client
from support.live_daemon import Live
from support.media_files import image, sound
from support.models.tiny_kv_models import EXACT, N_EMBD, write_model
from support.models.tiny_projectors import write_projector
from support.peer import llama_server

# Random, so that every logit counts.
DRAWN = {"temperature": 1.5, "seed": 3, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "n_predict": 24}
N_REQUESTS = 8


def written(client: Client, marker: str, i: int, data: bytes) -> Any:
    """Texts of every length, so that images arrive while others write."""
    text = f"{i}" * (3 + 29 * i) + f" {marker} and {marker}, tell"
    prompt = {"prompt_string": text, "multimodal_data": [base64.b64encode(data).decode()] * 2}
    answer = client.post("/completion", {"prompt": prompt, **DRAWN, "return_tokens": True})
    assert answer.status == 200, answer.body
    return answer.json["tokens"], answer.json["tokens_evaluated"]


@pytest.mark.parametrize(
    ("arch", "kind", "memory"),
    [
        ("llama", "janus_pro", "--no-kv-unified"),
        ("llama", "gemma4ua", "--kv-unified"),
        ("gemma3", "gemma3", "--no-kv-unified"),
        ("gemma3", "gemma3", "--kv-unified"),
    ],
)
def test_the_text_is_llama_servers(tmp_path: Path, arch: str, kind: str, memory: str) -> None:
    """gemma3: rows that see each other, in a model with a sliding window that is shorter than they are."""
    model = write_model(tmp_path / "model.gguf", arch, np.float32)
    projector = write_projector(tmp_path / "projector.gguf", kind, N_EMBD)
    flags = ("--mmproj", projector, "-c", "4096", "-np", "4", "-ub", "64", "--no-warmup", memory, *EXACT)
    files = [sound(i, n=1000 + 700 * i) if kind == "gemma4ua" else image(i) for i in range(N_REQUESTS)]
    with llama_server(model, *flags) as peer:
        marker = peer.get("/props").json["media_marker"]
        expected = [written(peer, marker, i, data) for i, data in enumerate(files)]
    with Live(*flags, model=model) as server, ThreadPoolExecutor(N_REQUESTS) as pool:
        ask = [pool.submit(written, server.client, "<__media__>", i, data) for i, data in enumerate(files)]
        assert [one.result() for one in ask] == expected
