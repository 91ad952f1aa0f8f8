"""Every form of a prompt that llama-server takes: texts, token ids, both in one array, objects, and arrays of these."""

from __future__ import annotations

from typing import Any

import pytest

TEXT = "The river Rhine"
WRAPPED = {"prompt_string": TEXT, "multimodal_data": []}


@pytest.fixture
def ids(client: Any) -> list[int]:
    return client.post("/tokenize", {"content": TEXT}).json["tokens"]


def n_read(result: Any) -> int:
    return result["tokens_evaluated"]


def test_objects(client: Any) -> None:
    n_tokens = n_read(client.complete(TEXT, n_predict=1))
    for prompt in (WRAPPED, {"prompt_string": TEXT}, [WRAPPED]):
        result = client.complete(prompt, n_predict=1)
        assert n_read(result) == n_tokens
        assert result["prompt"].endswith(TEXT)
        answer = client.post("/v1/completions", {"prompt": prompt, "max_tokens": 1, "echo": True})
        assert answer.json["choices"][0]["text"].startswith(TEXT)


def test_mixed_arrays(client: Any, ids: list[int]) -> None:
    """An array with an object or an array in it is one of several prompts."""
    results = client.complete([TEXT, ids, [ids[0], " and", *ids], WRAPPED], n_predict=1)
    assert [result["index"] for result in results] == [0, 1, 2, 3]
    assert [n_read(result) - len(ids) for result in results] == [0, 0, 1 + 1, 0]
    assert n_read(client.complete([*ids, " and"], n_predict=1)) == len(ids) + 1


WRONG: list[tuple[Any, int, str]] = [
    ({}, 400, "prompt_string"),
    ({"prompt_string": 1}, 400, "prompt_string"),
    ([{"prompt_string": TEXT, "multimodal_data": ["AAAA"]}], 501, "multimodal_data"),
    ([1, {"prompt_string": TEXT}], 400, "each prompt"),
]


@pytest.mark.parametrize(("prompt", "status", "named"), WRONG)
def test_wrong_objects(client: Any, prompt: Any, status: int, named: str) -> None:
    for path in ("/completion", "/v1/completions"):
        answer = client.post(path, {"prompt": prompt, "n_predict": 1})
        assert answer.status == status, answer.body
        assert named in answer.error["message"]


def test_tokenize_arrays(client: Any, ids: list[int]) -> None:
    joined = client.post("/tokenize", {"content": [TEXT, 5, TEXT]}).json["tokens"]
    assert joined == [*ids, 5, *ids]
    pieces = client.post("/tokenize", {"content": [5, TEXT], "with_pieces": True}).json["tokens"]
    assert [one["id"] for one in pieces] == [5, *ids]
    assert client.post("/tokenize", {"content": []}).json["tokens"] == []
    for wrong in ([None], [-1], [10**6], [[5]], {"a": 1}, [True]):
        answer = client.post("/tokenize", {"content": wrong})
        assert answer.status == 400
        assert '"content"' in answer.error["message"]
