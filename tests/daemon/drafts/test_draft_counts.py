"""A drafter that a flag names drafts in every request, and `timings` say so."""

import numpy as np
from support.live_daemon import Live
from support.models.tiny_kv_models import write_model


def test_every_request_has_drafts_in_its_timings(tmp_path):
    """The model is so small that drafts never pay."""
    model = write_model(tmp_path / "model.gguf", "llama", np.float32)
    flags = ("--spec-type", "ngram-simple", "--spec-ngram-size-n", "2", "-np", "2", "-c", "1024")
    with Live(*flags, model=model) as server:
        for n in range(1, 9):
            body = {"n_predict": 64, "temperature": 0, "ignore_eos": True}
            timings = server.client.complete("abcdefgh " * n, **body)["timings"]
            assert timings["draft_n"] >= 1
