"""Options that the engine itself carries out, each alone changing the outcome."""

import json

import pytest
from support.live_daemon import Live

CODE = "def area(r):\n    # the area of a circle\n"
CHAT = "<|im_start|>user\nSay hi.<|im_end|>\n<|im_start|>assistant\n"
STORY = " ".join(f"The {i}th house on the street is painted in a colour of its own." for i in range(20))


def greedy(client, prompt, **options):
    return client.complete(prompt, **{"temperature": 0, "n_predict": 8, "cache_prompt": False, **options})


@pytest.mark.real_model
def test_n_indent_ends_at_a_line_with_less(client):
    free = greedy(client, CODE, n_predict=40)
    kept = greedy(client, CODE, n_predict=40, n_indent=4)
    assert kept["generation_settings"]["n_indent"] == 4
    assert kept["stop_type"] == "limit"
    assert free["content"].startswith(kept["content"])
    assert len(kept["content"]) < len(free["content"])
    lines = kept["content"].split("\n")
    assert all(line.startswith("    ") for line in lines[1:-1])
    assert lines[-1].strip() == ""
    body = {
        "prompt": CODE,
        "temperature": 0,
        "n_predict": 40,
        "n_indent": 4,
        "cache_prompt": False,
        "stream": True,
    }
    events = list(client.events("/completion", body))
    assert "".join(event["content"] for event in events) == kept["content"]


@pytest.mark.real_model
def test_penalty_prompt_replaces_the_prompt_for_the_penalties(client):
    prompt = "red red red red red red red red red red"
    options = {"repeat_penalty": 1.8, "repeat_last_n": 64, "n_predict": 4, "return_tokens": True}
    own = greedy(client, prompt, **options)
    none = greedy(client, prompt, penalty_prompt="", **options)
    assert none["tokens"][0] != own["tokens"][0]  # without the prompt's penalty it goes on with red
    assert none["content"].startswith(" red")
    settings = none["generation_settings"]
    assert (settings["use_penalty_prompt_tokens"], settings["penalty_prompt_tokens"]) == (True, [])
    settings = own["generation_settings"]
    assert (settings["use_penalty_prompt_tokens"], settings["penalty_prompt_tokens"]) == (False, [])
    ids = client.post("/tokenize", {"content": " red"}).json["tokens"]
    for value in (" red", ids):
        penalized = greedy(client, prompt, penalty_prompt=value, **options)
        assert penalized["tokens"][0] != none["tokens"][0]
        assert penalized["generation_settings"]["penalty_prompt_tokens"] == ids
    assert greedy(client, prompt, penalty_prompt=None, **options)["tokens"] == own["tokens"]


@pytest.mark.parametrize("value", [5, {"a": 1}, [1, "x"], [-1], [10**6], [True], "x" * 70000])
def test_a_wrong_penalty_prompt_is_named(client, value):
    answer = client.post("/completion", {"prompt": "x", "penalty_prompt": value})
    assert answer.status == 400
    assert '"penalty_prompt"' in answer.error["message"]


@pytest.mark.real_model
def test_special_tokens_are_seen_where_the_server_says_so(client):
    hidden = greedy(client, CHAT, n_predict=40)
    assert hidden["stop_type"] == "eos"
    with Live("-np", "1", "-c", "512", "--special") as server:
        shown = greedy(server.client, CHAT, n_predict=40, n_probs=1)
        assert shown["content"] == hidden["content"] + "<|im_end|>"
        assert shown["completion_probabilities"][-1]["token"] == "<|im_end|>"
        stopped = greedy(server.client, CHAT, n_predict=40, stop=["<|im_end|>"])
        assert (stopped["content"], stopped["stop_type"]) == (hidden["content"], "word")


def test_self_extend_goes_on_beyond_its_window_and_reads_otherwise(client, tiny):
    flags = ("-np", "2", "-c", "2048")
    short = "The capital of France is"
    plain, plain_short = greedy(client, STORY, n_predict=40), greedy(client, short)
    assert plain["tokens_evaluated"] > 2 * 64
    with Live(*flags, "-gan", "1", "-gaw", "64", model=tiny) as server:
        assert greedy(server.client, STORY, n_predict=40)["content"] == plain["content"]
    with Live(*flags, "-gan", "4", "-gaw", "64", model=tiny) as server:
        extended = greedy(server.client, STORY, n_predict=40)
        assert extended["tokens_predicted"] == 40
        assert extended["content"] != plain["content"]
        # Inside the window nothing is different.
        assert greedy(server.client, short)["content"] == plain_short["content"]
        # The same again, over what the slot holds, and in parallel.
        assert greedy(server.client, STORY, n_predict=40)["content"] == extended["content"]
        both = greedy(server.client, [STORY, STORY], n_predict=4)
        assert both[0]["content"] == both[1]["content"]
        assert server.client.get("/health").status == 200


def both_ways(client, body):
    whole = client.post("/completion", body).json
    events = list(client.events("/completion", {**body, "stream": True}))
    assert "".join(event["content"] for event in events) == whole["content"]
    assert events[-1]["stop_type"] == whole["stop_type"]
    # Only the limit may cut a character in two: never what is sent before the last text.
    assert all("\ufffd" not in event["content"] for event in events[:-2])
    return whole


@pytest.mark.parametrize("n_probs", [0, 2])
@pytest.mark.parametrize("words", ["😀 🦙 🎉 👍🏽", "fünf zwölf Äpfel größer süß"])
def test_stop_strings_across_tokens_and_at_the_very_end_are_exact(client, words, n_probs):
    """The grammar has words of characters that are several tokens each."""
    grammar = f"root ::= ({' | '.join(json.dumps(word, ensure_ascii=False) for word in words.split())})+"
    body = {"prompt": "x", "grammar": grammar, "temperature": 0, "n_predict": 32, "cache_prompt": False}
    body["n_probs"] = n_probs
    free = both_ways(client, body)
    text = free["content"].rstrip("\ufffd")
    for at, end in ((1, 3), (len(text) // 2 - 1, len(text) // 2 + 2), (len(text) - 2, len(text))):
        stop = text[at:end]
        cut = both_ways(client, {**body, "stop": ["never so", stop]})
        assert cut["content"] == text[: text.index(stop)]
        assert (cut["stop_type"], cut["stopping_word"]) == ("word", stop)
    # The text ends in the middle of a stop string: it was no stop string.
    unfinished = both_ways(client, {**body, "stop": [text[-2:] + "\x00never"]})
    assert unfinished["content"] == free["content"]
