"""Requests that fill their context, on memories whose tokens cannot be moved, or have lost some that would be seen."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from support.live_daemon import Live
from support.models.tiny_kv_models import BOS, FIRST_BYTE, HYBRID_WINDOW, N_VOCAB, SENSITIVE, write_model


def test_a_hybrid_with_windows_ends_where_its_context_is_full(tmp_path: Path) -> None:
    """llama.cpp says that it can shift such a memory, and aborts: its cache for layers without a window has none."""
    model = write_model(tmp_path / "model.gguf", HYBRID_WINDOW)
    with Live("-np", "1", "-c", "256", "--slots", model=model) as server:
        answer = server.client.complete([1] + [70] * 199, n_predict=100, ignore_eos=True)
        assert (answer["tokens_predicted"], answer["truncated"], answer["stop_type"]) == (57, True, "limit")
        refused = server.client.post("/slots/0?action=context-shift", {"n_keep": 4, "n_discard": 10})
        assert refused.status == 501, refused.body
        assert server.client.complete([1, 70, 71], n_predict=2, ignore_eos=True)["tokens_predicted"] == 2


@pytest.mark.parametrize("flags", [(), ("--swa-full",)], ids=" ".join)
def test_a_window_that_lost_what_a_shift_brings_back_is_computed_again(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """A restored state holds the window alone. When the context is full and most of it is kept, the window moves back
    over tokens that are not there. The text is that of a prompt of the tokens that are left."""
    window, n_ctx, n_prompt, n_kept = 40, 256, 240, 200
    model = write_model(tmp_path / "model.gguf", "gemma3", np.float32, window, SENSITIVE)
    choose = random.Random(3)
    prompt = [BOS, *(choose.randrange(FIRST_BYTE, N_VOCAB) for _ in range(n_prompt - 1))]
    exact = ("-fa", "off", "-ctk", "f32", "-ctv", "f32")
    greedy = {"temperature": 0, "ignore_eos": True, "return_tokens": True}
    with Live("-np", "1", "-c", str(n_ctx), "--slots", "--metrics", *exact, *flags, model=model) as server:
        client = server.client
        client.complete(prompt[:-1], n_predict=0)
        for action in ("save", "restore"):
            assert client.post(f"/sessions/1?action={action}&slot=0").status == 200
        answer = client.complete(prompt, n_predict=36, n_keep=n_kept - 1, **greedy)  # and BOS
        assert answer["timings"]["cache_n"] == n_prompt - 1
        assert answer["truncated"]
        text = prompt + answer["tokens"]
        n_full = n_ctx - 1  # one place is left for the next token
        n_discarded = (n_full - n_kept) // 2
        left = text[:n_kept] + text[n_kept + n_discarded : n_full + 1]
        again = client.complete(left, n_predict=len(text) - n_full - 1, cache_prompt=False, **greedy)
        assert again["tokens"] == text[n_full + 1 :]
        assert f"llamad:recomputed_tokens_total {len(left) - 1}\n" in client.get("/metrics").body.decode()
