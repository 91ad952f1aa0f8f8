"""Stop strings and characters that are split over tokens: exact, and the same streamed and whole."""

import json

import pytest
from support.models.bigram_model import EOS, token

# After "s" the model writes ST OP t s ST OP t s ..., after "u" the four bytes of 🦙, v, é, u.


def both(bigram, prompt, **options):
    """The answer, which must be the same whole and streamed."""
    body = {"prompt": prompt, "temperature": 0, "n_predict": 12, **options}
    whole = bigram.client.post("/completion", {**body, "return_tokens": True}).json
    events = list(bigram.client.events("/completion", {**body, "stream": True}))
    last = events[-1]
    assert "".join(event["content"] for event in events) == whole["content"]
    assert [token for event in events for token in event["tokens"]] == whole["tokens"]
    # A client may take each piece that arrives for one event: nothing without text comes with the last one.
    assert all(event["content"] for event in events[:-1])
    for name in (
        "stop_type",
        "stopping_word",
        "tokens_predicted",
        "truncated",
        "stopped_word",
        "stopped_limit",
    ):
        assert last[name] == whole[name], name
    for event in events[:-1]:
        event["content"].encode()  # no half of a surrogate pair
    return whole, events


@pytest.mark.parametrize(
    ("stop", "content", "n_tokens"),
    [
        (["STOP"], "", 2),  # over two tokens
        (["TO"], "S", 2),  # over their border
        (["OPt"], "ST", 3),  # from one token's beginning to another's end
        (["PtsS"], "STO", 5),  # within, over three, within
        (["O"], "ST", 2),  # the middle of a token
        (["ts"], "STOP", 4),
        (["sS"], "STOPt", 5),
        ("sST", "STOPt", 5),  # a string instead of an array
        (["never", "ts"], "STOP", 4),
        (["STOPtsX", "ts"], "STOP", 4),  # the longer one begins earlier but does not come
        (["STOPts", "T"], "S", 1),  # the one that is complete first
    ],
    ids=str,
)
def test_a_stop_string_wherever_it_lies(bigram, stop, content, n_tokens):
    whole, events = both(bigram, "s", stop=stop)
    assert (whole["content"], whole["stop_type"]) == (content, "word")
    assert whole["stopping_word"] in ([stop] if isinstance(stop, str) else stop)
    assert whole["tokens_predicted"] == n_tokens
    assert whole["stopped_word"] is True
    streamed = "".join(event["content"] for event in events)
    assert whole["stopping_word"] not in streamed


def test_a_partial_stop_string_is_never_sent(bigram):
    """Each beginning of one is held back until it is clear what it becomes: "STOPt", and the next letter decides."""
    stop = "STOPt!"
    whole, events = both(bigram, "s", stop=[stop], n_predict=22)
    assert whole["content"] == "STOPts" * 5 + "STOP"
    sent = ""
    for event in events[:-2]:
        sent += event["content"]
        assert not any(sent.endswith(stop[:n]) for n in range(1, len(stop))), sent
    assert sent == "STOPts" * 5


def test_a_stop_string_that_ends_with_the_last_token(bigram):
    """n_predict is reached in the same moment: it is still the word that stopped."""
    whole, _ = both(bigram, "s", stop=["STOPts"], n_predict=4)
    assert (whole["content"], whole["stop_type"]) == ("", "word")


def test_a_stop_string_that_is_cut_off_by_the_end_is_text(bigram):
    whole, _ = both(bigram, "s", stop=["STOPtsST"], n_predict=4)
    assert (whole["content"], whole["stop_type"], whole["stopping_word"]) == ("STOPts", "limit", "")


def test_a_stop_string_cut_off_by_the_end_of_text_is_text(bigram):
    """r q, then the end: "rq!" was begun and does not come."""
    whole, _ = both(bigram, "r", stop=["q!"])
    assert (whole["content"], whole["stop_type"]) == ("q", "eos")


def test_stop_strings_are_echoed(bigram):
    for stop, echoed in ((["a", "b"], ["a", "b"]), ("a", ["a"]), (None, []), ([""], [])):
        assert bigram.ask("x", n_predict=1, stop=stop)["generation_settings"]["stop"] == echoed


def test_a_character_of_four_tokens_is_sent_whole(bigram):
    whole, events = both(bigram, "u", n_predict=14)
    assert whole["content"] == "🦙véu🦙véu"
    texts = [event["content"] for event in events if event["content"]]
    assert texts == ["🦙", "v", "é", "u", "🦙", "v", "é", "u"]
    assert whole["tokens"][:4] == [token(byte) for byte in "🦙".encode()]


def test_a_stop_string_of_split_characters(bigram):
    whole, _ = both(bigram, "u", stop=["🦙v"])
    assert (whole["content"], whole["stopping_word"]) == ("", "🦙v")
    whole, _ = both(bigram, "u", stop=["éu🦙"])
    assert whole["content"] == "🦙v"
    whole, _ = both(bigram, "u", stop=["🦙x"], n_predict=7)
    assert whole["content"] == "🦙véu"


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_character_that_is_cut_off_is_replaced(bigram, n):
    whole, _ = both(bigram, "u", n_predict=n)
    assert whole["content"] == "\N{REPLACEMENT CHARACTER}"
    assert whole["tokens_predicted"] == n


def test_a_byte_that_is_no_character_is_replaced(bigram):
    whole, _ = both(bigram, "y", n_predict=6)
    assert whole["content"] == "\N{REPLACEMENT CHARACTER}zy" * 2


def test_has_new_line(bigram):
    assert bigram.ask("w", temperature=0, n_predict=2)["has_new_line"] is True
    assert bigram.ask("a", n_predict=2)["has_new_line"] is False


def test_the_last_event_has_the_tokens_without_text(bigram):
    """Those of the stop string, and the end of the text with its probabilities."""
    whole, events = both(bigram, "s", stop=["ts"], n_probs=2)
    assert events[-1]["tokens"] == [token("t"), token("s")]
    assert "completion_probabilities" not in events[-1]  # what was cut off has none
    whole, events = both(bigram, "q", n_probs=2)
    assert (whole["stop_type"], whole["tokens"]) == ("eos", [EOS])
    assert events[-1]["completion_probabilities"] == whole["completion_probabilities"]
    assert [one["id"] for one in whole["completion_probabilities"]] == [EOS]


def completion_chunks(client, body):
    """The choices of a stream of /v1/completions."""
    lines = client.post("/v1/completions", {**body, "stream": True}).body.decode().splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: {")]
    return [json.loads(one)["choices"][0] for one in data]


def test_openais_last_event_has_the_tokens_without_text(bigram):
    body = {"prompt": "s", "temperature": 0, "max_tokens": 12, "stop": ["ts"], "return_tokens": True}
    whole = bigram.client.post("/v1/completions", body).json["choices"][0]
    chunks = completion_chunks(bigram.client, body)
    assert "".join(one["text"] for one in chunks) == whole["text"] == "STOP"
    assert [token for one in chunks for token in one["tokens"]] == whole["tokens"]
    assert all(one["text"] for one in chunks[:-1])
    body = {"prompt": "q", "temperature": 0, "logprobs": 2}
    whole = bigram.client.post("/v1/completions", body).json["choices"][0]
    chunks = completion_chunks(bigram.client, body)
    assert len(chunks) == 1
    assert (chunks[0]["finish_reason"], chunks[0]["logprobs"]) == ("stop", whole["logprobs"])
    assert len(whole["logprobs"]["tokens"]) == 1
