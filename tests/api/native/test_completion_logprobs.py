"""n_probs and post_sampling_probs on the real model: the documented shapes, streamed and not."""

import math

import pytest

PROMPT = "Building a website can be done in 10 simple steps:"
EMOJI = "Repeat: 😀😀😀😀😀 again: 😀"


def ask(client, **options):
    return client.complete(
        options.pop("prompt", PROMPT),
        **{"temperature": 0, "n_predict": 8, "cache_prompt": False, "return_tokens": True, **options},
    )


def told(client, **options):
    """The streamed events' entries, joined."""
    body = {"prompt": PROMPT, "temperature": 0, "n_predict": 8, "cache_prompt": False, **options}
    events = list(client.events("/completion", {**body, "stream": True}))
    assert "completion_probabilities" not in events[-1]
    text = "".join(event["content"] for event in events)
    return text, [one for event in events[:-1] for one in event.get("completion_probabilities", [])]


@pytest.mark.real_model
def test_n_probs_adds_the_likeliest_tokens_and_changes_nothing_else(client):
    plain, result = ask(client), ask(client, n_probs=5)
    assert "completion_probabilities" not in plain
    assert plain["content"] == result["content"]
    assert result["generation_settings"]["n_probs"] == 5
    entries = result["completion_probabilities"]
    assert [entry["id"] for entry in entries] == result["tokens"]
    assert "".join(entry["token"] for entry in entries) == result["content"]
    for entry in entries:
        assert set(entry) == {"id", "token", "bytes", "logprob", "top_logprobs", "content", "probs"}
        assert bytes(entry["bytes"]).decode() == entry["token"] == entry["content"]
        top = entry["top_logprobs"]
        assert len(top) == 5
        assert all(set(one) == {"id", "token", "bytes", "logprob"} for one in top)
        values = [one["logprob"] for one in top]
        assert values == sorted(values, reverse=True)
        assert sum(math.exp(value) for value in values) <= 1 + 1e-6
        # Greedy: the likeliest is the one that was picked.
        assert (top[0]["id"], top[0]["logprob"]) == (entry["id"], entry["logprob"])
        assert [one["tok_str"] for one in entry["probs"]] == [one["token"] for one in top]
        assert [one["prob"] for one in entry["probs"]] == pytest.approx([math.exp(value) for value in values])


def test_logprobs_are_the_models_own_whatever_the_sampler_does(client):
    plain = ask(client, n_probs=4, n_predict=1)["completion_probabilities"][0]
    hot = ask(client, n_probs=4, n_predict=1, temperature=5, seed=1, top_k=0)["completion_probabilities"][0]
    assert hot["top_logprobs"] == plain["top_logprobs"]
    assert hot["id"] != plain["id"]
    by_id = {one["id"]: one["logprob"] for one in plain["top_logprobs"]}
    assert hot["logprob"] == by_id.get(hot["id"], hot["logprob"]) < plain["logprob"]


def test_post_sampling_probs_are_of_what_the_sampler_left(client):
    options = {"temperature": 0.8, "seed": 3, "n_probs": 10, "n_predict": 4, "post_sampling_probs": True}
    result = ask(client, **options, top_k=3, top_p=1, min_p=0)
    assert result["generation_settings"]["post_sampling_probs"] is True
    for entry in result["completion_probabilities"]:
        assert set(entry) == {"id", "token", "bytes", "prob", "top_probs", "content", "probs"}
        top = entry["top_probs"]
        assert len(top) == 3  # fewer than n_probs: the others were cut away
        assert sum(one["prob"] for one in top) == pytest.approx(1, abs=1e-5)
        assert entry["prob"] == next(one["prob"] for one in top if one["id"] == entry["id"])
        assert entry["probs"] == [{"prob": one["prob"], "tok_str": one["token"]} for one in top]
    one = ask(client, **{**options, "temperature": 0})["completion_probabilities"][0]
    assert [row["prob"] for row in one["top_probs"]] == [1]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"post_sampling_probs": True, "temperature": 0.8, "seed": 5},
        {"prompt": EMOJI, "n_predict": 24},
        {"stop": [" need"], "n_predict": 24},
        {"stop": ["\n\n"], "n_predict": 24},
    ],
)
def test_a_streams_entries_join_to_the_whole_list(client, options):
    whole = ask(client, n_probs=3, **options)
    text, entries = told(client, n_probs=3, **options)
    assert text == whole["content"]
    assert entries == whole["completion_probabilities"]


@pytest.mark.real_model
def test_tokens_of_a_removed_stop_word_are_left_out(client):
    plain = ask(client, n_probs=1, n_predict=12)
    entries = plain["completion_probabilities"]
    at = next(i for i, entry in enumerate(entries) if i > 3 and entry["token"].strip())
    stop = entries[at]["token"] + entries[at + 1]["token"]
    cut = ask(client, n_probs=1, n_predict=12, stop=[stop])
    assert cut["stopping_word"] == stop
    assert cut["content"] == "".join(entry["token"] for entry in entries[:at])
    assert cut["completion_probabilities"] == entries[:at]


@pytest.mark.real_model
def test_every_byte_of_a_split_character_is_told(client):
    result = ask(client, prompt=EMOJI, n_probs=1, n_predict=24)
    joined = b"".join(bytes(entry["bytes"]) for entry in result["completion_probabilities"])
    assert joined.decode("utf-8", "replace") == result["content"]
    assert any(
        len(entry["token"]) and "\ufffd" in entry["token"] for entry in result["completion_probabilities"]
    )


@pytest.mark.parametrize(("n_probs", "said"), [(101, "--n-probs-max"), (-1, "n_probs"), ("5", "n_probs")])
def test_n_probs_has_its_limits(client, n_probs, said):
    answer = client.post("/completion", {"prompt": "x", "n_probs": n_probs})
    assert answer.status == 400
    assert said in answer.error["message"]
