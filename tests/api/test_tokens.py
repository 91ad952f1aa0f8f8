"""POST /tokenize and /detokenize on the real model."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


def tokens(client, content, **options):
    return client.post("/tokenize", {"content": content, **options}).json["tokens"]


def test_pieces_are_text_or_bytes(client):
    found = tokens(client, "Hello 🦙", with_pieces=True)
    assert found[0] == {"id": tokens(client, "Hello")[0], "piece": "Hello"}
    raw = b"".join(p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"]) for p in found)
    assert raw == "Hello 🦙".encode()
    assert any(isinstance(p["piece"], list) for p in found)


def test_special_tokens_are_parsed_unless_told_not_to(client):
    assert len(tokens(client, "<|im_end|>")) == 1
    assert len(tokens(client, "<|im_end|>", parse_special=False)) > 1


def test_nothing_and_null_give_no_tokens(client):
    assert tokens(client, "") == []
    assert client.post("/tokenize", {}).json == {"tokens": []}
    assert client.post("/detokenize", {}).json == {"content": ""}


def test_long_texts_go_to_a_worker(client):
    text = "All work and no play. " * 4000
    assert client.post("/detokenize", {"tokens": tokens(client, text)}).json["content"] == text


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(exclude_categories=["Cs", "Cn", "Co", "Cc"]), max_size=200))
def test_any_text_survives_the_round_trip(client, text):
    assert (
        client.post("/detokenize", {"tokens": tokens(client, text, parse_special=False)}).json["content"]
        == text
    )


@pytest.mark.parametrize(
    ("path", "body", "word"),
    [
        ("/tokenize", {"content": 5}, "content"),
        ("/tokenize", {"content": "x", "add_special": "yes"}, "add_special"),
        ("/detokenize", {"tokens": "x"}, "tokens"),
        ("/detokenize", {"tokens": ["x"]}, "tokens"),
        ("/detokenize", {"tokens": [True]}, "tokens"),
        ("/detokenize", {"tokens": [49152]}, "49152"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": [2**40]}, "tokens"),
        ("/detokenize", {"tokens": [1.5]}, "tokens"),
    ],
)
def test_wrong_input_is_named(client, path, body, word):
    answer = client.post(path, body)
    assert answer.status == 400
    assert word in answer.error["message"]
