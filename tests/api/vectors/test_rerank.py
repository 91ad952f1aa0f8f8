"""Reranking over a real reranker: its scores, Jina's form and TEI's, and what is wrong."""

from __future__ import annotations

import math
from array import array
from types import SimpleNamespace
from typing import Any

import pytest
from support.models import bert_reference

from llamad.api.vectors.rerank import pairs
from llamad.protocol.model_info import VectorInfo

QUERY = "What is a panda?"
DOCUMENTS = [
    "hi",
    "it is a bear",
    "Paris is the capital of France.",
    "The giant panda (Ailuropoda melanoleuca), sometimes called a panda bear or simply panda, is a bear species"
    " endemic to China.",
]


@pytest.fixture(scope="module")
def expected(reranker: Any) -> list[float]:
    tokenizer = bert_reference.Tokenizer(reranker)
    return [float(bert_reference.scores(reranker, tokenizer.pair(QUERY, one))[0]) for one in DOCUMENTS]


@pytest.mark.parametrize("path", ["/rerank", "/reranking", "/v1/rerank", "/v1/reranking"])
def test_scores_are_those_of_the_weights_best_first(reranking: Any, expected: list[float], path: str) -> None:
    answer = reranking.post(path, {"model": "any", "query": QUERY, "documents": DOCUMENTS})
    assert answer.status == 200, answer.body
    body = answer.json
    assert (body["model"], body["object"]) == ("any", "list")
    assert body["usage"]["prompt_tokens"] == body["usage"]["total_tokens"] > 40
    scores = [(one["index"], one["relevance_score"]) for one in body["results"]]
    assert scores[0][0] == 3
    assert [index for index, _ in scores] == sorted(range(4), key=lambda i: -expected[i])
    for index, score in scores:
        assert abs(score - expected[index]) < 0.02
    assert set(body["results"][0]) == {"index", "relevance_score"}


def test_the_query_and_document_stand_between_the_models_tokens(reranking: Any, reranker: Any) -> None:
    n_tokens = len(bert_reference.Tokenizer(reranker).pair(QUERY, "it is a bear"))
    body = reranking.post("/rerank", {"query": QUERY, "documents": ["it is a bear"]}).json
    assert body["usage"]["prompt_tokens"] == n_tokens


def test_top_n(reranking: Any) -> None:
    for top_n, n_expected in ((2, 2), (99, 4), (0, 0)):
        body = {"query": QUERY, "documents": DOCUMENTS, "top_n": top_n}
        assert len(reranking.post("/rerank", body).json["results"]) == n_expected


def test_documents_may_be_objects_and_come_back(reranking: Any) -> None:
    body = {"query": QUERY, "documents": [{"text": one} for one in DOCUMENTS], "return_documents": True}
    best = reranking.post("/rerank", body).json["results"][0]
    assert best["document"] == {"text": DOCUMENTS[3]}


def test_texts_are_answered_as_tei_does(reranking: Any, expected: list[float]) -> None:
    body = {"query": QUERY, "texts": DOCUMENTS, "return_text": True, "raw_scores": True}
    raw = reranking.post("/rerank", body).json
    assert [set(one) for one in raw] == [{"index", "score", "text"}] * 4
    assert raw[0]["text"] == DOCUMENTS[3]
    assert abs(raw[0]["score"] - expected[3]) < 0.02
    plain = reranking.post("/rerank", {"query": QUERY, "texts": DOCUMENTS}).json
    assert [set(one) for one in plain] == [{"index", "score"}] * 4
    assert [one["index"] for one in plain] == [one["index"] for one in raw]
    for one, other in zip(plain, raw, strict=True):
        assert abs(one["score"] - 1 / (1 + math.exp(-other["score"]))) < 1e-6


def test_special_tokens_in_a_text_are_text(reranking: Any, reranker: Any) -> None:
    n_tokens = len(bert_reference.Tokenizer(reranker).pair("a", "b [SEP] c"))
    body = reranking.post("/rerank", {"query": "a", "documents": ["b [SEP] c"]}).json
    assert body["usage"]["prompt_tokens"] == n_tokens > 7


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"documents": ["a"]}, '"query" must be provided'),
        ({"query": 5, "documents": ["a"]}, '"query" must be a non-empty string'),
        ({"query": "", "documents": ["a"]}, '"query" must be a non-empty string'),
        ({"query": "a"}, '"documents" must be a non-empty array of strings'),
        ({"query": "a", "documents": []}, '"documents" must be a non-empty array of strings'),
        ({"query": "a", "documents": "b"}, '"documents" must be a non-empty array of strings'),
        ({"query": "a", "texts": []}, '"texts" must be a non-empty array of strings'),
        ({"query": "a", "documents": ["a", 5]}, '"documents[1]" must be a string, or an object'),
        ({"query": "a", "documents": [{"title": "b"}]}, '"documents[0]" must be a string, or an object'),
        ({"query": "a", "documents": ["b"], "top_n": -1}, '"top_n" must be at least 0'),
        ({"query": "a", "documents": ["b"], "top_n": "x"}, '"top_n" must be an integer'),
        ({"query": "a", "texts": ["b"], "raw_scores": 1}, '"raw_scores" must be true or false'),
        ({"query": "a", "documents": ["b"] * 2049}, '"documents" may hold at most 2048 texts'),
    ],
)
def test_a_wrong_request_is_a_400_that_names_the_field(reranking: Any, body: Any, message: str) -> None:
    answer = reranking.post("/rerank", body)
    assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")
    assert message in answer.error["message"]


def test_a_pair_longer_than_the_context_is_a_400_with_the_numbers(reranking: Any) -> None:
    answer = reranking.post("/rerank", {"query": QUERY, "documents": ["fine", "word " * 600]})
    assert (answer.status, answer.error["type"]) == (400, "exceed_context_size_error")
    assert answer.error["n_prompt_tokens"] > answer.error["n_ctx"] == 512
    assert "documents[1]" in answer.error["message"]


def test_what_a_reranker_cannot_do(reranking: Any) -> None:
    answer = reranking.post("/classify", {"inputs": "a"})
    assert (answer.status, answer.error["type"]) == (501, "not_supported_error")
    assert "yields a single score" in answer.error["message"]
    answer = reranking.post("/v1/embeddings", {"input": "a"})
    assert answer.status == 501
    assert "its pooling is 'rank'" in answer.error["message"]


# How a pair is put together, over vocabularies of bytes.


class Bytes:
    """A token for each byte; 1000 more where special tokens in the text would have been read as such."""

    n_token_bytes = 1

    def tokenize(self, data: bytes, add_special: bool, parse_special: bool) -> bytes:
        assert not add_special
        return array("i", [one + 1000 * parse_special for one in data]).tobytes()


def pair(template: str | None = None, query: str = "q", document: str = "d", **ids: Any) -> list[int]:
    named = {
        "bos": 1,
        "eos": 2,
        "sep": 3,
        "add_bos": True,
        "add_eos": True,
        "add_sep": False,
        "vocab_type": 2,
        **ids,
    }
    model: Any = SimpleNamespace(vocab=Bytes(), info=SimpleNamespace(rerank_template=template, **named))
    info = VectorInfo("rank", 1, ("LABEL_0",), True, 99, False)
    (found,) = pairs(query, [document], "documents", model, info)
    return memoryview(found).cast("i").tolist()


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ({}, [1, ord("q"), 2, ord("d"), 2]),
        ({"add_sep": True}, [1, ord("q"), 2, 3, ord("d"), 2]),  # RoBERTa's pair has two between
        ({"eos": -1}, [1, ord("q"), 3, ord("d"), 3]),
        ({"add_eos": False, "add_sep": True}, [1, ord("q"), 3, ord("d")]),
        ({"add_bos": False, "add_eos": False}, [ord("q"), ord("d")]),
    ],
)
def test_special_tokens_are_the_vocabularys(ids: dict[str, Any], expected: list[int]) -> None:
    assert pair(**ids) == expected


def test_a_models_own_template_is_filled_once() -> None:
    filled = pair("<{query}|{document}>", query="a{document}", document="b{query}")
    assert bytes(one - 1000 for one in filled) == b"<a{document}|b{query}>"
