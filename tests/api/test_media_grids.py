"""Images of M-RoPE models, whose rows stand in a grid and take fewer positions than they are, beside llama-server. Tiny
models with full precision, so that texts hardly depend on the shapes in which they are computed."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from support.http_client import Client
from support.live_daemon import Live
from support.media_files import image
from support.models.tiny_kv_models import EXACT, N_EMBD, write_model
from support.models.tiny_projectors import write_projector
from support.peer import llama_server

GREEDY = {"temperature": 0.0, "n_predict": 16, "max_tokens": 16, "return_tokens": True}
# Random, so that every logit counts.
DRAWN = {**GREEDY, "temperature": 1.5, "seed": 3, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
WIDE, TALL, SQUARE, STRIP = (
    base64.b64encode(image(i, size=size)).decode()
    for i, size in enumerate(((100, 50), (40, 90), (64, 64), (640, 16)))
)
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module", params=["streams", "unified, in pieces"])
def both(tmp_path_factory: Any, request: pytest.FixtureRequest) -> Iterator[tuple[Client, Client]]:
    """llama-server and llamad."""
    folder = tmp_path_factory.mktemp("grids")
    model = write_model(folder / "model.gguf", "qwen2vl", np.float32)
    projector = write_projector(folder / "projector.gguf", "qwen2vl_merger", N_EMBD)
    flags: tuple[str, ...] = (
        "--mmproj",
        projector,
        "-c",
        "8192",
        "-np",
        "4",
        "--no-warmup",
        "--slots",
        *EXACT,
    )
    flags += ("--no-kv-unified",) if request.param == "streams" else ("--kv-unified", "-b", "32", "-ub", "8")
    with llama_server(model, *flags) as peer, Live(*flags, model=model) as server:
        yield peer, server.client


def written(client: Client, text: str, *images: str, **more: Any) -> tuple[list[int], int]:
    """The tokens behind a text with images at each @, and how many there are of the prompt."""
    marker = client.get("/props").json["media_marker"]
    prompt = {"prompt_string": text.replace("@", marker), "multimodal_data": images}
    answer = client.post("/completion", {"prompt": prompt, **GREEDY, **more})
    assert answer.status == 200, answer.body
    return answer.json["tokens"], answer.json["tokens_evaluated"]


PROMPTS = (
    ("Look: @ and tell", WIDE),
    ("Look: @ and tell", WIDE),  # of which all is cached
    ("Two: @ and @ unequal", WIDE, TALL),
    ("Two: @ and @ unequal", WIDE, SQUARE),  # the first of which is
    ("@@ at the beginning", TALL, SQUARE),
    ("A strip: @ of one row", STRIP),  # which takes as many positions as it has rows
)


def test_the_text_is_llama_servers(both: tuple[Client, Client]) -> None:
    for options in (GREEDY, DRAWN):
        texts = [[written(one, *prompt, **options) for prompt in PROMPTS] for one in both]
        assert texts[0] == texts[1]
        assert len({tuple(tokens) for tokens, _ in texts[0]}) > 2, "images make a difference"


def test_beside_other_slots(both: tuple[Client, Client]) -> None:
    prompts = [
        (str(i) * (5 + 40 * i) + " @ and @ tell", (WIDE, TALL)[i % 2], (SQUARE, TALL)[i % 2])
        for i in range(6)
    ]
    peer, ours = both
    alone = [written(peer, *prompt, **DRAWN) for prompt in prompts]
    with ThreadPoolExecutor(len(prompts)) as pool:
        assert [*pool.map(lambda prompt: written(ours, *prompt, **DRAWN), prompts)] == alone


def test_turns_after_an_image(both: tuple[Client, Client]) -> None:
    """Each turn goes on from what the one before has left."""
    parts: list[dict[str, Any]] = [{"type": "text", "text": "What? "}]
    parts += [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{one}"}} for one in (WIDE, TALL)
    ]
    texts: list[list[Any]] = [[], []]
    for i, one in enumerate(both):
        messages: list[dict[str, Any]] = [{"role": "user", "content": parts}]
        for text in ("and now?", "go on", "last"):
            answer = one.post(CHAT, {"messages": messages, **DRAWN, "n_predict": 8, "max_tokens": 8}).json
            texts[i].append((answer["choices"][0]["message"]["content"], answer["usage"]["prompt_tokens"]))
            if len(messages) > 1:
                assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 100
            messages += [
                {"role": "assistant", "content": f"Answer {text}"},
                {"role": "user", "content": text},
            ]
    assert texts[0] == texts[1]


def test_what_is_counted(both: tuple[Client, Client]) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": SQUARE}
    blocks = [{"type": "image", "source": source}, {"type": "text", "text": "x"}]
    messages = {"messages": [{"role": "user", "content": blocks}], "max_tokens": 1}
    url = f"data:image/png;base64,{SQUARE}"
    items = [{"type": "input_image", "image_url": url}, {"type": "input_text", "text": "x"}]
    answers = []
    for one in both:
        counted = one.post("/v1/messages/count_tokens", messages).json["input_tokens"]
        usage = one.post("/v1/messages", messages).json["usage"]
        sent = {"input": [{"role": "user", "content": items}], "max_output_tokens": 1}
        response = one.post("/v1/responses", sent).json["usage"]["input_tokens"]
        done = one.post("/completion", {"prompt": "plain", "n_predict": 1, "id_slot": 1}).json
        written(one, "One: @ in a slot", SQUARE, id_slot=1, n_predict=4)
        slot = one.get("/slots").json[1]["n_prompt_tokens"]
        modalities = one.get("/props").json["modalities"]
        capabilities = one.get("/v1/models").json["models"][0]["capabilities"]
        read = usage["input_tokens"] + usage["cache_read_input_tokens"]
        answers.append((counted, read, response, done["tokens_evaluated"], slot, modalities, capabilities))
    assert answers[0] == answers[1]
    assert answers[0][0] == answers[0][1] == answers[0][2] > 16
