"""An image that was sent before: neither encoded nor read again, from a slot or from the prompt cache, by one
completion or several; and another image in its place is not taken for it. Of an M-RoPE model, with full precision."""

from __future__ import annotations

import base64
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.live_daemon import WAIT_SECONDS, Live
from support.media_files import image
from support.models.tiny_kv_models import N_EMBD, write_model
from support.models.tiny_projectors import write_projector

FLAGS: tuple[str, ...] = ("-c", "1024", "--no-warmup", "--metrics", "--slots", "-fa", "off")
FLAGS += ("-ctk", "f32", "-ctv", "f32", "--cache-ram", "64")
DRAWN = {"temperature": 1.5, "seed": 3, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "n_predict": 12}
WIDE, TALL, SAME = (
    base64.b64encode(image(i, size=size)).decode() for i, size in enumerate(((100, 50), (50, 100), (100, 50)))
)
N_BEFORE = 40  # tokens before the image, at most


@pytest.fixture(scope="module")
def files(tmp_path_factory: Any) -> tuple[str, str]:
    folder: Path = tmp_path_factory.mktemp("caches")
    model = write_model(folder / "model.gguf", "qwen2vl", np.float32)
    return model, write_projector(folder / "projector.gguf", "qwen2vl_merger", N_EMBD)


@pytest.fixture(scope="module")
def server(files: tuple[str, str]) -> Iterator[Live]:
    with Live(*FLAGS, "-np", "1", "--mmproj", files[1], model=files[0]) as server:
        yield server


def children(server: Live, module: str) -> list[int]:
    pids = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            is_child = f"PPid:\t{server.process.pid}\n" in Path(f"/proc/{name}/status").read_text()
            if is_child and module.encode() in Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0"):
                pids.append(int(name))
        except OSError:
            pass
    return pids


@contextmanager
def no_encoder(server: Live) -> Iterator[None]:
    """What would have to be encoded waits for ever."""
    (encoder,) = children(server, "llamad.media.encoder")
    os.kill(encoder, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(encoder, signal.SIGCONT)


def ask(server: Live, data: str, text: str = "Look: <__media__> and tell", **more: Any) -> Any:
    prompt = {"prompt_string": text, "multimodal_data": [data]}
    answer = server.client.post("/completion", {"prompt": prompt, **DRAWN, **more})
    assert answer.status == 200, answer.body
    return answer.json


def metric(server: Live, name: str) -> float:
    lines = server.client.get("/metrics").body.decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(name + " "))


def test_the_same_image_again(server: Live) -> None:
    first = ask(server, WIDE)
    n_prompt = first["tokens_evaluated"]
    with no_encoder(server):
        again = ask(server, WIDE)
        assert again["timings"]["cache_n"] == n_prompt - 1
        assert again["content"] == first["content"]
        alone = ask(server, WIDE, cache_prompt=False)
        assert (alone["timings"]["cache_n"], alone["content"]) == (0, first["content"])


def test_another_image_in_its_place(server: Live) -> None:
    """Of the same size or not, after the first in the slot."""
    for other in (SAME, TALL):
        first = ask(server, WIDE)
        answer = ask(server, other)
        assert answer["timings"]["cache_n"] < N_BEFORE
        assert answer["content"] != first["content"]
        assert answer["content"] == ask(server, other, cache_prompt=False)["content"]


def test_an_image_from_the_prompt_cache(server: Live) -> None:
    first = ask(server, WIDE)
    n_hits = metric(server, "llamad:prompt_cache_hits_total")
    for data in (TALL, SAME):
        ask(server, data, "Quite another text about it. " * 4 + "<__media__> and tell")
    with no_encoder(server):
        again = ask(server, WIDE)
    assert metric(server, "llamad:prompt_cache_hits_total") == n_hits + 1
    assert again["timings"]["cache_n"] == first["tokens_evaluated"] - 1
    assert again["content"] == first["content"]


def test_several_completions_read_an_image_once(files: tuple[str, str]) -> None:
    with Live(*FLAGS, "-np", "3", "--mmproj", files[1], model=files[0]) as server:
        answers = ask(server, WIDE, n=3)
        n_prompt = answers[0]["tokens_evaluated"]
        assert sorted(one["timings"]["cache_n"] for one in answers) == [0, n_prompt, n_prompt]
        for i, one in enumerate(answers):  # each with the next seed
            alone = ask(server, WIDE, seed=DRAWN["seed"] + i, cache_prompt=False)
            assert one["content"] == alone["content"]


def test_an_engine_that_ended_costs_no_encoding(server: Live) -> None:
    first = ask(server, WIDE)
    (engine,) = children(server, "llamad.engine")
    os.kill(engine, signal.SIGKILL)
    t_end = time.monotonic() + WAIT_SECONDS
    while children(server, "llamad.engine") in ([], [engine]) and time.monotonic() < t_end:
        time.sleep(0.02)
    server.wait_ready()
    with no_encoder(server):
        again = ask(server, WIDE)
    assert (again["timings"]["cache_n"], again["content"]) == (0, first["content"])


def test_a_full_context_with_an_image_is_not_shifted(tmp_path: Path) -> None:
    """Its rows cannot move. That of a text is, in the same slot."""
    model = write_model(tmp_path / "model.gguf", "llama", np.float32)
    projector = write_projector(tmp_path / "projector.gguf", "janus_pro", N_EMBD)
    flags = (*FLAGS, "-c", "256", "-np", "1", "--context-shift", "--cache-reuse", "8", "--mmproj", projector)
    shift = {"n_keep": 1, "n_discard": 8}
    with Live(*flags, model=model) as server:
        full = ask(server, WIDE, n_predict=400, ignore_eos=True)
        assert (full["stop_type"], full["truncated"]) == ("limit", True)
        assert full["tokens_predicted"] + full["tokens_evaluated"] == 256 + 1
        answer = server.client.post("/slots/0?action=context-shift", shift)
        assert answer.status == 501, answer.body
        body = {"prompt": "plain", **DRAWN, "n_predict": 400, "ignore_eos": True}
        shifted = server.client.post("/completion", body).json
        assert (shifted["tokens_predicted"], shifted["truncated"]) == (400, True)
        assert server.client.post("/slots/0?action=context-shift", shift).status == 200


def test_no_saved_state_holds_an_image(server: Live) -> None:
    """A session is one, too. A text that takes the slot can be saved."""
    ask(server, WIDE)
    for path in ("/slots/0?action=save-state", "/sessions/7?action=save&slot=0"):
        answer = server.client.post(path, {})
        assert (answer.status, "images or sound" in answer.json["error"]["message"]) == (501, True), (
            answer.body
        )
    server.client.post("/completion", {"prompt": "plain", "n_predict": 1})
    assert server.client.post("/slots/0?action=save-state", {}).status == 200
