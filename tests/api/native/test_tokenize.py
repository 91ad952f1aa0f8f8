"""POST /tokenize and /detokenize on the real model."""

import json
import socket

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.live_daemon import Live
from support.models import bigram_model

N_CONNECTIONS = 200


def tokens(client, content, **options):
    return client.post("/tokenize", {"content": content, **options}).json["tokens"]


def test_pieces_are_text_or_bytes(client):
    pieces = tokens(client, "Hello 🦙", with_pieces=True)
    assert pieces[0] == {"id": tokens(client, "Hello")[0], "piece": "Hello"}
    raw = b"".join(p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"]) for p in pieces)
    assert raw == "Hello 🦙".encode()
    assert any(isinstance(p["piece"], list) for p in pieces)


def test_special_tokens_are_parsed_unless_told_not_to(client):
    assert len(tokens(client, "<|im_end|>")) == 1
    assert len(tokens(client, "<|im_end|>", parse_special=False)) > 1


def test_nothing_gives_no_tokens(client):
    assert tokens(client, "") == []
    assert client.post("/detokenize", {}).json == {"content": ""}


@pytest.fixture(scope="module")
def spaced(tmp_path_factory):
    """A server whose tokenizer puts a space before every text."""
    path = bigram_model.write_bigram(tmp_path_factory.mktemp("spaced") / "spaced.gguf")
    with Live(
        "-c", "512", "--override-kv", "tokenizer.ggml.add_space_prefix=bool:true", model=path
    ) as server:
        yield server.client


def test_the_space_of_the_first_piece_stays(spaced):
    """A client that asks for the text of each token must not lose the spaces between words."""
    ids = tokens(spaced, "a b")
    assert ids == bigram_model.tokens("▁a▁b")
    assert spaced.post("/detokenize", {"tokens": ids}).json["content"] == " a b"
    assert spaced.post("/detokenize", {"tokens": ids[2:]}).json["content"] == " b"
    assert spaced.post("/detokenize", {"tokens": ids * 5000}).json["content"] == " a b" * 5000
    assert spaced.post("/detokenize", {"tokens": [bigram_model.BOS, *ids]}).json["content"] == "<s> a b"


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


def test_parts_of_a_character_are_replaced(client):
    ids = tokens(client, "🦙")
    assert len(ids) > 1
    assert client.post("/detokenize", {"tokens": ids}).json["content"] == "🦙"
    assert "\ufffd" in client.post("/detokenize", {"tokens": ids[:1]}).json["content"]


class Raw:
    """A keep-alive connection whose requests can be sent before the last is answered."""

    def __init__(self, client) -> None:
        self._socket = socket.create_connection((client.host, client.port), timeout=20)
        self._file = self._socket.makefile("rb")

    def send(self, *contents: str) -> None:
        bodies = [json.dumps({"content": one}).encode() for one in contents]
        head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        self._socket.sendall(b"".join(head % len(body) + body for body in bodies))

    def tokens(self) -> list[int]:
        assert self._file.readline().startswith(b"HTTP/1.1 200 ")
        n_bytes = 0
        while (line := self._file.readline()) != b"\r\n":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                n_bytes = int(value)
        return json.loads(self._file.read(n_bytes))["tokens"]

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def test_pipelined_texts_are_answered_in_order(client):
    """Several threads tokenize, and a short text is done before a long one."""
    contents = ["word " * n for n in (500, 1, 300, 2, 1000, 3, 4)]
    raw = Raw(client)
    raw.send(*contents)
    assert [raw.tokens() for _ in contents] == [tokens(client, one) for one in contents]
    raw.close()


def test_many_connections_at_once(client):
    made = [Raw(client) for _ in range(N_CONNECTIONS)]
    contents = [f"number {i}, " + "and so on " * (i % 20) for i in range(N_CONNECTIONS)]
    expected = [tokens(client, one) for one in contents]
    for _ in range(3):
        for raw, one in zip(made, contents, strict=True):
            raw.send(one)
        assert [raw.tokens() for raw in made] == expected
    for raw in made:
        raw.close()


@pytest.mark.parametrize(
    ("path", "body", "word"),
    [
        ("/tokenize", {}, '"content" is required'),
        ("/tokenize", {"content": None}, '"content" is required'),
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
