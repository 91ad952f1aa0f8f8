"""Classification over a real classifier: the documented answer, raw scores, the model's labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import shell_examples
from support.live_daemon import Live
from support.models import bert_reference

TEXTS = ["What time is it?", "Who is the president of France?", "Summarize this for me"]


@pytest.mark.parametrize("path", ["/classify", "/v1/classify"])
def test_one_text(classifying: Any, classifier: Any, path: str) -> None:
    answer = classifying.post(path, {"inputs": TEXTS[1]})
    assert answer.status == 200, answer.body
    body = answer.json
    tokens = bert_reference.Tokenizer(classifier).one(TEXTS[1])
    n_tokens = len(tokens)
    assert set(body) == {"model", "object", "usage", "predictions"}
    assert (body["model"], body["object"]) == ("sorter", "list")
    assert body["usage"] == {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    generic, directed = bert_reference.scores(classifier, tokens)
    assert [one["label"] for one in body["predictions"]] == ["directed", "generic"]
    for one, expected in zip(body["predictions"], (directed, generic), strict=True):
        assert set(one) == {"label", "score"}
        assert abs(one["score"] - expected) < 0.02


def test_several_texts_have_a_list_each(classifying: Any, classifier: Any) -> None:
    predictions = classifying.post("/classify", {"inputs": TEXTS}).json["predictions"]
    assert len(predictions) == 3
    for text, found in zip(TEXTS, predictions, strict=True):
        scores = dict(
            zip(
                ("generic", "directed"),
                bert_reference.scores(classifier, bert_reference.Tokenizer(classifier).one(text)),
                strict=True,
            )
        )
        assert [one["label"] for one in found] == sorted(scores, key=lambda label: -scores[label])
        assert all(abs(one["score"] - scores[one["label"]]) < 0.02 for one in found)
    assert len(classifying.post("/classify", {"inputs": TEXTS[:1]}).json["predictions"][0]) == 2


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, '"inputs" must be provided'),
        ({"inputs": 5}, '"inputs" must be a string or an array of strings'),
        ({"inputs": ["a", 5]}, '"inputs" must be a string or an array of strings'),
        ({"inputs": []}, '"inputs" must not be empty'),
    ],
)
def test_a_wrong_request_is_a_400_that_names_the_field(classifying: Any, body: Any, message: str) -> None:
    answer = classifying.post("/classify", body)
    assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")
    assert message in answer.error["message"]


def test_classes_without_labels_are_numbered_and_a_missing_head_is_a_501(tmp_path: Any) -> None:
    """llama.cpp counts classes by their labels, so that empty ones stand for none."""
    unnamed = bert_reference.write_gguf(tmp_path / "unnamed.gguf", bert_reference.seeded(labels=("", "")))
    with Live("--reranking", model=unnamed) as server:
        refused = server.client.post("/classify", {"inputs": [[7]]})
        assert refused.status == 400
        labels = {
            one["label"] for one in server.client.post("/classify", {"inputs": "w7"}).json["predictions"]
        }
        assert labels == {"LABEL_0", "LABEL_1"}
    headless = bert_reference.write_gguf(tmp_path / "headless.gguf", bert_reference.seeded())
    with Live("--reranking", model=headless) as server:
        for path in ("/rerank", "/classify"):
            answer = server.client.post(path, {"query": "w7", "documents": ["w8"], "inputs": "w7"})
            assert (answer.status, answer.error["type"]) == (501, "not_supported_error")
            assert "the model has no classification head" in answer.error["message"]
        server.wait_line("has no classification head")


EXAMPLES = (
    """curl -s http://localhost:8080/v1/classify \\
  -H "Content-Type: application/json" \\
  -d '{
    "inputs": "I love this product, it works great!"
  }' | jq .
""",
    """curl -s http://localhost:8080/v1/classify \\
  -H "Content-Type: application/json" \\
  -d '{
    "inputs": [
      "I love this product!",
      "This is terrible, worst purchase ever.",
      "It is okay, nothing special."
    ]
  }' | jq .
""",
)


def test_the_documented_examples(classifying: Any, tmp_path: Path) -> None:
    url = f"http://{classifying.host}:{classifying.port}"
    (one,), (three,) = (
        shell_examples.values(shell_examples.run(example, tmp_path, url)) for example in EXAMPLES
    )
    assert one.keys() == three.keys() == {"model", "object", "usage", "predictions"}
    assert [set(prediction) for prediction in one["predictions"]] == [{"label", "score"}] * 2
    assert [len(predictions) for predictions in three["predictions"]] == [2, 2, 2]
