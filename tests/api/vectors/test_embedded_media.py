"""Images and sound in embeddings, over tiny models and projectors; beside llama-server where it was built."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.http_client import Client
from support.live_daemon import Live
from support.media_files import image, sound
from support.models.tiny_kv_models import N_EMBD, write_model
from support.models.tiny_projectors import write_projector
from support.peer import llama_server

EXACT = ("-fa", "off", "-ctk", "f32", "-ctv", "f32", "--no-warmup", "--embedding")
N_ROWS = 16  # of an image, by the projector of the forms


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


PNG, OTHER, SOUND = b64(image(1)), b64(image(2, size=(40, 90))), b64(sound(1))
TEXT = "Look: [img-12] and tell"
OBJECT = {"prompt_string": "Look: <__media__> and tell", "multimodal_data": [PNG]}
GRIDS = (("Look: @ and tell", PNG), ("Two: @ and @ unequal", PNG, OTHER), ("@", OTHER))
PART = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("embedded")


@pytest.fixture(scope="module")
def seeing(folder: Path, tiny: str) -> Iterator[Client]:
    """Of a model that names no pooling."""
    projector = write_projector(folder / "forms.gguf", "janus_pro", 64)
    flags = ("--embedding", "-c", "256", "-np", "2", "--metrics", "--mmproj", projector)
    with Live(*flags, model=tiny) as server:
        yield server.client


@pytest.fixture(scope="module")
def grids(folder: Path) -> tuple[str, ...]:
    """A model with M-RoPE, of full precision, and flags with its projector."""
    model = write_model(folder / "grids.gguf", "qwen2vl", np.float32)
    projector = write_projector(folder / "grids-projector.gguf", "qwen2vl_merger", N_EMBD)
    return model, "--mmproj", projector, "-c", "1024", "-np", "1", *EXACT


def rows(client: Client, value: Any, **more: Any) -> list[Any]:
    answer = client.post("/embedding", {"input": value, "embd_normalize": -1, **more})
    assert answer.status == 200, answer.body
    return [np.array(one["embedding"]) for one in answer.json]


def of_files(client: Client, text: str, *files: str) -> Any:
    """The rows of a text with a file at each @."""
    marker = client.get("/props").json["media_marker"]
    (found,) = rows(client, {"prompt_string": text.replace("@", marker), "multimodal_data": files})
    return found


def test_the_forms_are_one(seeing: Client) -> None:
    (expected,) = rows(seeing, OBJECT)
    parts = [{"type": "text", "text": "Lo"}, {"type": "text", "text": "ok: "}, PART]
    parts.append({"type": "text", "text": " and tell"})
    images = [{"id": 12, "data": PNG}]
    older = seeing.post("/embedding", {"content": TEXT, "image_data": images}).json
    assert np.array_equal(older[0]["embedding"], expected)
    several = rows(seeing, [OBJECT, "plain", {"content": parts}, TEXT], image_data=images)
    assert len(several) == 4
    for one in (several[0], *several[2:]):
        assert np.array_equal(one, expected)
    assert np.allclose(several[1], rows(seeing, "plain")[0], atol=1e-5)
    text = rows(seeing, {"prompt_string": "Look: "})[0]
    assert np.allclose(text, expected[: len(text)], atol=0.05), "what stands before the image does not see it"
    (other,) = rows(seeing, {**OBJECT, "multimodal_data": [OTHER]})
    assert not np.allclose(other[-1], expected[-1], atol=0.05)


def test_the_answer_of_v1(seeing: Client) -> None:
    (expected,) = rows(seeing, OBJECT)
    answer = seeing.post("/v1/embeddings", {"input": [OBJECT, {"content": [PART]}]}).json
    mean = expected.mean(axis=0)
    assert np.allclose(answer["data"][0]["embedding"], mean / np.linalg.norm(mean), atol=1e-6)
    (alone,) = rows(seeing, {"content": [PART]})
    assert len(alone) in (N_ROWS, N_ROWS + 1), "an image needs no text behind it; BOS may stand before it"
    assert answer["usage"]["prompt_tokens"] == len(expected) + len(alone)


def test_a_text_with_images_is_a_batch_of_its_own(seeing: Client) -> None:
    def n_batches() -> float:
        lines = seeing.get("/metrics").body.decode().splitlines()
        name = "llamad:vector_batches_total "
        return float(next(line for line in lines if line.startswith(name)).split()[1])

    before = n_batches()
    rows(seeing, ["a", "b", OBJECT, OBJECT, "c", "d"])
    assert n_batches() - before == 4


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"content": TEXT, "image_data": ["x"]}, 400, '"image_data[0]" must be an object'),
        ({"content": TEXT, "image_data": [{"id": 12, "data": "aaaa"}]}, 400, '"image_data[0].data"'),
        ({"input": {**OBJECT, "multimodal_data": [PNG, PNG]}}, 400, "1 markers"),
        ({"input": {**OBJECT, "multimodal_data": [SOUND]}}, 501, "reads no sound"),
        ({"input": {"content": [{"type": "image_url"}]}}, 400, '"input.content.image_url" names no file'),
        ({"input": {"content": [{"type": "video_url", "video_url": "x"}]}}, 501, "video_url"),
        ({"input": {"prompt_string": "<__media__>" * 9, "multimodal_data": [PNG] * 9}}, 400, "at most 128"),
    ],
)
def test_what_is_wrong_is_said(seeing: Client, body: Any, status: int, says: str) -> None:
    answer = seeing.post("/embedding", body)
    assert (answer.status, says in answer.error["message"]) == (status, True), answer.body


def test_without_a_projector_images_are_a_501(embedding: Client) -> None:
    for body in (
        {"content": TEXT, "image_data": [{"id": 12, "data": PNG}]},
        {"content": "plain", "image_data": [{"id": 12, "data": PNG}]},
        {"input": ["plain", OBJECT]},
        {"input": {"content": [PART]}},
    ):
        answer = embedding.post("/embedding", body)
        assert (answer.status, "--mmproj" in answer.error["message"]) == (501, True), answer.body


def test_attention_that_is_not_causal_is_a_501(grids: tuple[str, ...]) -> None:
    model, *flags = grids
    with Live(*flags, "--attention", "non-causal", model=model) as server:
        answer = server.client.post("/embedding", {"input": OBJECT})
        assert (answer.status, "not causal" in answer.error["message"]) == (501, True), answer.body
        assert server.client.post("/embedding", {"input": "plain"}).status == 200


@pytest.fixture(scope="module")
def unpooled(grids: tuple[str, ...]) -> Any:
    """The rows of all tokens of GRIDS."""
    model, *flags = grids
    with Live(*flags, "--pooling", "none", model=model) as server:
        return [of_files(server.client, *one) for one in GRIDS]


@pytest.mark.parametrize("pooling", ["last", "mean", "cls"])
def test_poolings_are_over_all_tokens(grids: tuple[str, ...], unpooled: Any, pooling: str) -> None:
    """Of images that are decoded in parts, too."""
    model, *flags = grids
    pooled = {"last": lambda one: one[-1], "mean": lambda one: one.mean(axis=0), "cls": lambda one: one[0]}
    with Live(*flags, "--pooling", pooling, "-ub", "8", model=model) as server:
        for one, expected in zip(GRIDS, unpooled, strict=True):
            (found,) = of_files(server.client, *one)
            assert len(expected) > 24
            assert np.allclose(found, pooled[pooling](expected), atol=1e-4)


def test_rows_are_llama_servers(grids: tuple[str, ...], unpooled: Any) -> None:
    """Without pooling it answers with the rows of the last text only."""
    model, *flags = grids
    with llama_server(model, *flags, "--pooling", "none") as peer:
        for one, ours in zip(GRIDS, unpooled, strict=True):
            theirs = of_files(peer, *one)
            assert np.allclose(ours[-len(theirs) :], theirs, atol=1e-4)


@pytest.mark.parametrize(("kind", "file"), [("gemma3", PNG), ("gemma4ua", SOUND)])
def test_vectors_are_llama_servers(folder: Path, kind: str, file: str) -> None:
    """Of images whose rows see each other, and of sound; with the EOS of a model that wants it."""
    model = write_model(folder / f"{kind}-model.gguf", "llama", np.float32)
    projector = write_projector(folder / f"{kind}.gguf", kind, N_EMBD)
    ends = ("--override-kv", "tokenizer.ggml.add_eos_token=bool:true")
    flags = ("--mmproj", projector, "-c", "1024", "-np", "1", "--pooling", "last", *ends, *EXACT)
    with llama_server(model, *flags) as peer, Live(*flags, model=model) as server:
        theirs, ours = (of_files(one, "Look: @ and tell", file) for one in (peer, server.client))
        assert np.allclose(ours, theirs, atol=1e-4)
