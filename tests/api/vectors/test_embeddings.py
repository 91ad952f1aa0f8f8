"""Embeddings over real weights: they are those of the model, in every shape of request and answer."""

from __future__ import annotations

import base64
import random
from typing import Any

import numpy as np
import pytest
from support.live_daemon import Live
from support.models import bert_reference

TEXTS = (
    "Hello world",
    "The quick brown fox jumps over Zürich's lazy dog!",
    "你好 unbelievably, tokenization",
    "a  b\tc\nd-e (f) $5 %x",
)


def cosine(a: Any, b: Any) -> float:
    return float(np.dot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b)))


def embed(client: Any, value: Any, **options: Any) -> Any:
    answer = client.post("/v1/embeddings", {"input": value, **options})
    assert answer.status == 200, answer.body
    return answer.json


def vectors(client: Any, value: Any, **options: Any) -> list[Any]:
    return [np.array(one["embedding"]) for one in embed(client, value, **options)["data"]]


def test_vectors_are_those_of_the_weights(embedding: Any, minilm: Any) -> None:
    tokenizer = bert_reference.Tokenizer(minilm)
    embeddings = vectors(embedding, list(TEXTS))
    for text, vector in zip(TEXTS, embeddings, strict=True):
        tokens = tokenizer.one(text)
        assert embedding.post("/tokenize", {"content": text, "add_special": True}).json["tokens"] == tokens
        assert cosine(vector, bert_reference.hidden(minilm, tokens).mean(axis=0)) > 0.9999
        assert abs(np.linalg.norm(vector) - 1.0) < 1e-5


def test_meaning(embedding: Any) -> None:
    cat, kitten, tax = vectors(embedding, ["A cat sleeps.", "The kitten is napping.", "Tax law reform"])
    assert cosine(cat, kitten) > 0.5 > cosine(cat, tax)


def test_packed_texts_are_as_alone(embedding: Any) -> None:
    draw = random.Random(5)
    words = "one two three apple unbelievable Zürich of the house 42 , . network".split()
    texts = [" ".join(draw.choices(words, k=draw.choice((1, 2, 5, 17, 60, 200)))) for _ in range(24)]
    before = metric(embedding, "batches")
    together = vectors(embedding, texts)
    assert metric(embedding, "batches") - before < 18
    for text, vector in zip(texts, together, strict=True):
        assert cosine(vector, vectors(embedding, text)[0]) > 0.9999


def metric(client: Any, name: str) -> float:
    lines = client.get("/metrics").body.decode().splitlines()
    return float(next(line for line in lines if line.startswith(f"llamad:vector_{name}_total ")).split()[1])


def test_the_answer_of_v1(embedding: Any) -> None:
    answer = embed(embedding, ["hello", "hello world"], model="any", user="me")
    assert answer["object"] == "list"
    assert answer["model"] == "any"
    assert answer["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    assert [(one["object"], one["index"], len(one["embedding"])) for one in answer["data"]] == [
        ("embedding", 0, 384),
        ("embedding", 1, 384),
    ]
    assert embed(embedding, "hello")["model"].endswith(".gguf")


@pytest.mark.parametrize("path", ["/embedding", "/embeddings"])
@pytest.mark.parametrize("field", ["content", "input"])
def test_the_answer_of_the_older_paths(embedding: Any, path: str, field: str) -> None:
    answer = embedding.post(path, {field: "hello"})
    assert answer.status == 200
    ((index, rows),) = [(one["index"], one["embedding"]) for one in answer.json]
    assert index == 0
    assert cosine(rows[0], vectors(embedding, "hello")[0]) > 0.9999
    assert len(rows) == 1


def test_content_on_v1_has_the_older_answer(embedding: Any) -> None:
    assert [one["index"] for one in embedding.post("/v1/embeddings", {"content": ["a", "b"]}).json] == [0, 1]


@pytest.mark.parametrize(
    ("value", "n_inputs"),
    [
        ("hello world", 1),
        (["hello world"], 1),
        ([101, 7592, 2088, 102], 1),
        ([[101, 7592, 2088, 102]], 1),
        ([[101, 7592, 2088, 102], "hello world"], 2),
        ([101, "hello", 2088, 102], 1),
    ],
)
def test_input_in_every_shape(embedding: Any, value: Any, n_inputs: int) -> None:
    expected = vectors(embedding, "hello world")[0]
    embeddings = vectors(embedding, value)
    assert len(embeddings) == n_inputs
    for vector in embeddings:
        assert cosine(vector, expected) > 0.9999


def test_base64_holds_the_same_floats(embedding: Any) -> None:
    numbers = vectors(embedding, "hello")[0]
    (item,) = embed(embedding, "hello", encoding_format="base64")["data"]
    assert np.array_equal(
        np.frombuffer(base64.b64decode(item["embedding"]), "<f4"), numbers.astype(np.float32)
    )
    (older,) = embedding.post("/embeddings", {"content": "hello", "encoding_format": "base64"}).json
    assert older["embedding"] == [item["embedding"]]


def test_dimensions_cut_and_normalize_again(embedding: Any) -> None:
    whole, cut = vectors(embedding, "hello")[0], vectors(embedding, "hello", dimensions=100)[0]
    assert len(cut) == 100
    assert cosine(cut, whole[:100]) > 0.999999
    assert abs(np.linalg.norm(cut) - 1.0) < 1e-5


def test_other_norms(embedding: Any) -> None:
    def found(kind: int) -> Any:
        return vectors(embedding, "hello", embd_normalize=kind)[0]

    assert abs(np.abs(found(0)).max() - 32760) < 0.01
    assert abs(np.abs(found(1)).sum() - 1.0) < 1e-5
    assert abs((np.abs(found(3)) ** 3).sum() - 1.0) < 1e-5
    assert np.linalg.norm(found(-1)) > 1.5  # as the model gives it


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, '"input" or "content" must be provided'),
        ({"input": None}, '"input" or "content" must be provided'),
        ({"input": []}, '"input" must not be empty'),
        ({"input": [[]]}, '"input" must not be empty'),
        ({"input": 5}, '"input" must be a string, or an array'),
        ({"input": {"a": 1}}, '"input": an object must have a "prompt_string"'),
        ({"input": ["a", None]}, '"input[1]" must be a string or an array of token ids'),
        ({"input": [[1, 2.5]]}, '"input" must be a string or an array of token ids'),
        ({"input": [True]}, '"input" must be a string or an array of token ids'),
        ({"input": [101, 30522]}, '"input": token id 30522 is outside the vocabulary of 30522'),
        ({"input": [-1]}, '"input": token id -1 is outside'),
        ({"input": ["a"] * 2049}, '"input" may hold at most 2048 texts (--inputs-max), not 2049'),
        ({"input": "a", "encoding_format": "int8"}, '"encoding_format" must be "float" or "base64"'),
        ({"input": "a", "dimensions": 385}, '"dimensions" must be at most 384'),
        ({"input": "a", "dimensions": 0}, '"dimensions" must be at least 1'),
        ({"input": "a", "embd_normalize": -2}, '"embd_normalize" must be at least -1'),
        ({"input": "a", "model": 5}, '"model" must be a string'),
    ],
)
def test_a_wrong_request_is_a_400_that_names_the_field(embedding: Any, body: Any, message: str) -> None:
    answer = embedding.post("/v1/embeddings", body)
    assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")
    assert message in answer.error["message"]


@pytest.mark.parametrize("value", ["word " * 600, [7592] * 602, ["short", "word " * 600]])
def test_a_text_longer_than_the_context_is_a_400_with_the_numbers(embedding: Any, value: Any) -> None:
    answer = embedding.post("/v1/embeddings", {"input": value})
    assert (answer.status, answer.error["type"]) == (400, "exceed_context_size_error")
    assert (answer.error["n_prompt_tokens"], answer.error["n_ctx"]) == (602, 512)
    assert "602 tokens, but at most 512" in answer.error["message"]
    assert len(vectors(embedding, [101] + [7592] * 511)[0]) == 384


def test_what_an_embedding_model_cannot_do(embedding: Any) -> None:
    answer = embedding.post("/completion", {"prompt": "x"})
    assert (answer.status, answer.error["type"]) == (501, "not_supported_error")
    assert "cannot generate text" in answer.error["message"]
    for path, what in (("/rerank", "reranking"), ("/classify", "classification")):
        answer = embedding.post(path, {"query": "a", "documents": ["b"], "inputs": "c"})
        assert answer.status == 501
        assert answer.error["message"] == f"This server does not support {what}. Start it with `--reranking`"
    assert embedding.get("/props").status == 200
    assert embedding.get("/v1/models").json["data"][0]["meta"]["n_embd"] == 384


def test_off_without_the_flag(client: Any) -> None:
    answer = client.post("/v1/embeddings", {"input": "a"})
    assert (answer.status, answer.error["type"]) == (501, "not_supported_error")
    expected = "This server does not support embeddings. Start it with `--embeddings`"
    assert answer.error["message"] == expected
    assert (
        client.post("/v1/rerank", {}).error["message"].startswith("This server does not support reranking.")
    )


# A model that generates, too.


def test_an_empty_text_has_the_vector_of_its_special_tokens(embedding: Any) -> None:
    """An empty text is embedded as llama-server does it."""
    empty, other = vectors(embedding, ["", "hello"])
    assert np.linalg.norm(empty) == pytest.approx(1)
    assert np.array_equal(empty, vectors(embedding, "")[0])
    assert abs(empty @ other) < 0.9


def test_an_empty_text_without_special_tokens_is_a_400(beside: Any) -> None:
    answer = beside.post("/embeddings", {"input": ["a", ""]})
    assert answer.status == 400
    assert answer.error["message"] == '"input[1]" must not be empty'


def test_embedded_texts_count_as_prompts(embedding: Any) -> None:
    """The model generates no text, but has llama-server's counters."""

    def counts() -> dict[str, float]:
        lines = embedding.get("/metrics").body.decode().splitlines()
        return {
            name: float(value)
            for name, value in (one.split() for one in lines if one.startswith("llamacpp:"))
        }

    before = counts()
    embed(embedding, ["hello", "hello world"])
    after = counts()
    assert after["llamacpp:prompt_tokens_total"] == before["llamacpp:prompt_tokens_total"] + 7
    assert after["llamacpp:n_decode_total"] > before["llamacpp:n_decode_total"]
    assert after["llamacpp:prompt_seconds_total"] > before["llamacpp:prompt_seconds_total"]
    assert after["llamacpp:tokens_predicted_total"] == 0


def test_without_pooling_a_text_has_a_vector_per_token_and_for_openai_their_mean(beside: Any) -> None:
    tokens = beside.post("/tokenize", {"content": "The sky is blue", "add_special": True}).json["tokens"]
    (item,) = beside.post("/embeddings", {"input": "The sky is blue"}).json
    assert len(item["embedding"]) == len(tokens) > 2
    assert max(abs(np.linalg.norm(row) - 1.0) for row in item["embedding"]) > 1.0
    (mean,) = beside.post("/v1/embeddings", {"input": "The sky is blue"}).json["data"]
    expected = np.mean(item["embedding"], axis=0)
    assert np.allclose(mean["embedding"], expected / np.linalg.norm(expected), atol=1e-6)
    short = beside.post("/v1/embeddings", {"input": "The sky is blue", "dimensions": 8, "embd_normalize": -1})
    assert np.allclose(short.json["data"][0]["embedding"], expected[:8], atol=1e-5)


def test_a_pooling_that_the_model_names_stays(tiny: str) -> None:
    named = ("--override-kv", "llama.pooling_type=int:0")  # none
    with Live("--embedding", "-c", "256", *named, model=tiny) as server:
        answer = server.client.post("/v1/embeddings", {"input": "The sky is blue"})
        assert answer.status == 400
        assert "Pooling type 'none' is not OAI compatible" in answer.error["message"]


def test_a_causal_text_may_fill_a_slots_context(beside: Any) -> None:
    (item,) = beside.post("/embeddings", {"input": [100] * 256, "dimensions": 4}).json
    assert len(item["embedding"]) == 256
    answer = beside.post("/embeddings", {"input": [100] * 257})
    assert (answer.error["n_prompt_tokens"], answer.error["n_ctx"]) == (257, 256)


def test_the_number_of_texts_has_a_flag(beside: Any) -> None:
    assert beside.post("/embeddings", {"input": ["a"] * 9}).status == 200
    assert "at most 9 texts" in beside.post("/embeddings", {"input": ["a"] * 10}).error["message"]


def test_a_stream_goes_on_while_vectors_are_computed(beside: Any) -> None:
    """Neither waits for the other: vectors come between the tokens of one generation, and the text is its own."""
    request = {"prompt": "Once upon a time", "n_predict": 24, "temperature": 0, "stream": True}
    alone = "".join(event["content"] for event in beside.events("/completion", request))
    text, n_between = "", 0
    for i, event in enumerate(beside.events("/completion", request)):
        text += event["content"]
        if i % 8 == 0 and not event["stop"]:
            assert beside.post("/embeddings", {"input": [7 + i] * 40}).status == 200
            n_between += 1
    assert text == alone
    assert n_between >= 2


def test_objects(embedding: Any) -> None:
    """A text may be wrapped, as a prompt may."""
    wrapped = {"prompt_string": "A text."}
    plain = embedding.post("/v1/embeddings", {"input": ["A text.", "B"]}).json["data"]
    assert embedding.post("/v1/embeddings", {"input": [wrapped, "B"]}).json["data"] == plain
    parts = {"content": [{"type": "text", "text": "A te"}, {"type": "text", "text": "xt."}]}
    assert embedding.post("/v1/embeddings", {"input": [parts, "B"]}).json["data"] == plain
    assert embedding.post("/embeddings", {"content": wrapped}).json == (
        embedding.post("/embeddings", {"content": "A text."}).json
    )
    for wrong in ({}, {"content": "A text."}, {"content": [{"type": "text"}]}, {"content": [{"type": "x"}]}):
        assert embedding.post("/v1/embeddings", {"input": wrong}).status == 400
