"""Requests that fill their context, on a memory whose tokens cannot be moved: they end there, and the engine lives."""

from __future__ import annotations

from pathlib import Path

from support.live_daemon import Live
from support.models.tiny_kv_models import HYBRID_WINDOW, write_model


def test_a_hybrid_with_windows_ends_where_its_context_is_full(tmp_path: Path) -> None:
    """llama.cpp says that it can shift such a memory, and aborts: its cache for layers without a window has none."""
    model = write_model(tmp_path / "model.gguf", HYBRID_WINDOW)
    with Live("-np", "1", "-c", "256", "--slots", model=model) as server:
        answer = server.client.complete([1] + [70] * 199, n_predict=100, ignore_eos=True)
        assert (answer["tokens_predicted"], answer["truncated"], answer["stop_type"]) == (57, True, "limit")
        refused = server.client.post("/slots/0?action=context-shift", {"n_keep": 4, "n_discard": 10})
        assert refused.status == 501, refused.body
        assert server.client.complete([1, 70, 71], n_predict=2, ignore_eos=True)["tokens_predicted"] == 2
