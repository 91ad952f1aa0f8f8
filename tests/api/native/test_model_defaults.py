"""Sampling defaults that a GGUF carries, on the real program: below flags and requests, above the table's."""

from support.live_daemon import Live, model_path
from support.models.tiny_model import write_tiny

CARRIED = {
    "general.sampling.temp": 0.25,
    "general.sampling.top_k": 7,
    "general.sampling.top_p": 0.5,
    "general.sampling.sequence": "top_k;temperature",
    "general.sampling.min_p": 3.5,
    "general.sampling.penalty_repeat": "much",
    "general.sampling.mirostat": [1, 2],
}


def test_defaults_of_the_model(tmp_path):
    path = write_tiny(tmp_path / "tiny.gguf", model_path(), tokenizer=CARRIED)
    with Live("-c", "256", "-np", "1", "--top-k", "40", model=path) as server:
        shown = server.client.get("/props").json["default_generation_settings"]["params"]
        assert (shown["temperature"], shown["top_k"], shown["top_p"]) == (0.25, 40, 0.5)
        assert shown["samplers"] == ["top_k", "temperature"]
        assert (shown["min_p"], shown["repeat_penalty"], shown["mirostat"]) == (0.05, 1.0, 0)
        body = {"prompt": "a", "n_predict": 1, "top_p": 0.75}
        used = server.client.post("/completion", body).json["generation_settings"]
        assert (used["temperature"], used["top_k"], used["top_p"]) == (0.25, 40, 0.75)
        for key in ("min_p", "penalty_repeat", "mirostat"):
            server.wait_line(f"general.sampling.{key} is ignored")
