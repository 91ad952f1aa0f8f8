"""How long an answer is and what it keeps: n_predict, n_keep, n_discard, the context's end, the cache."""

import random

import pytest
from support.models.bigram_model import BOS, tokens

N_CTX = 256


def letters(n, seed=5):
    """A text of which no two pieces are alike, so that a common prefix is no chance."""
    return "".join(random.Random(seed).choice("abcdefgh") for _ in range(n))


def shifted(prompt, n_predict, n_keep, n_discard=0):
    """What the slot holds at the end of a greedy answer, as the rule says: before a token would fill the context,
    half of what is not kept goes, or n_discard of it. The last token picked is not read any more."""
    held = [BOS, *tokens(prompt)]
    for _ in range(n_predict - 1):
        if len(held) + 1 >= N_CTX:
            del held[n_keep : n_keep + (n_discard or (len(held) - n_keep) // 2)]
        held += tokens("a")
    return held


def n_common(first, second):
    return next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), len(second))


def test_n_predict_is_the_number_of_tokens(bigram):
    for n in (1, 7, 100):
        result = bigram.ask("a", n_predict=n)
        assert (result["tokens_predicted"], result["stop_type"]) == (n, "limit")
        assert result["generation_settings"]["n_predict"] == result["generation_settings"]["max_tokens"] == n
    assert bigram.ask("a", n_predict=None, max_tokens=7)["tokens_predicted"] == 7


def test_n_predict_0_only_fills_the_cache(bigram):
    prompt = letters(50)
    result = bigram.ask(prompt, n_predict=0)
    assert (result["content"], result["tokens_predicted"], result["stop_type"]) == ("", 0, "limit")
    assert bigram.ask(prompt, n_predict=1)["timings"]["cache_n"] == 50


def test_n_predict_minus_1_goes_on_past_the_context(bigram):
    """With this seed the end of the text comes after 340 tokens."""
    result = bigram.ask("x", n_predict=-1, seed=1)
    assert (result["stop_type"], result["truncated"]) == ("eos", True)
    assert result["tokens_predicted"] > N_CTX
    assert result["content"] == "x" * (result["tokens_predicted"] - 1)


def test_n_predict_minus_1_leaves_the_servers_limit(started):
    server = started("-n", "7")
    for name in ("n_predict", "max_tokens", "max_completion_tokens"):
        body = {"prompt": "x", "temperature": 0, name: -1}
        assert server.client.post("/completion", body).json["tokens_predicted"] == 7, name
    assert server.ask("x", temperature=0, n_predict=9)["tokens_predicted"] == 9
    body = {"prompt": "x", "temperature": 0, "max_tokens": -1}
    assert server.client.post("/v1/completions", body).json["usage"]["completion_tokens"] == 7


def test_n_predict_minus_2_ends_with_the_context(bigram):
    result = bigram.ask("a", n_predict=-2)
    assert (result["stop_type"], result["truncated"]) == ("limit", True)
    assert result["tokens_evaluated"] + result["tokens_predicted"] == N_CTX


def test_truncated_is_false_within_the_context(bigram):
    result = bigram.ask("a", n_predict=250)
    assert (result["truncated"], result["tokens_cached"]) == (False, 2 + 249)


@pytest.mark.parametrize("n_keep", [0, 10, 100, -1])
def test_n_keep_is_what_a_shift_leaves_of_the_prompt(bigram, n_keep):
    prompt = letters(150)
    result = bigram.ask(prompt, n_predict=200, n_keep=n_keep, temperature=0, id_slot=0)
    held = shifted(prompt, 200, 1 + (151 if n_keep < 0 else n_keep))  # BOS does not count
    assert result["truncated"] is True
    assert result["tokens_cached"] == len(held)
    assert result["generation_settings"]["n_keep"] == n_keep
    # What the slot holds now begins with what was kept of the prompt; the last token is always read again.
    again = bigram.ask(prompt, n_predict=0, id_slot=0)
    assert again["timings"]["cache_n"] == min(150, n_common(held, [BOS, *tokens(prompt)]))


@pytest.mark.parametrize("n_discard", [0, 1, 20, 100])
def test_n_discard_is_what_a_shift_drops(bigram, n_discard):
    prompt = letters(150)
    result = bigram.ask(prompt, n_predict=200, n_keep=10, n_discard=n_discard, temperature=0)
    assert result["tokens_cached"] == len(shifted(prompt, 200, 11, n_discard))
    assert result["generation_settings"]["n_discard"] == n_discard


def test_a_server_without_context_shift_ends_there(started):
    result = started("--no-context-shift").ask("a", n_predict=400)
    assert (result["stop_type"], result["truncated"]) == ("limit", True)
    assert result["tokens_evaluated"] + result["tokens_predicted"] == N_CTX


def test_cache_prompt_says_whether_a_prefix_is_used_again(bigram):
    prompt = letters(60, seed=9)
    assert bigram.ask(prompt, n_predict=1, cache_prompt=False)["timings"]["cache_n"] == 0
    cached = bigram.ask(prompt + "abc", n_predict=1)
    assert (cached["timings"]["cache_n"], cached["timings"]["prompt_n"]) == (61, 3)
    assert cached["generation_settings"]["cache_prompt"] is True
    again = bigram.ask(prompt + "abc", n_predict=1, cache_prompt=False)
    assert (again["timings"]["cache_n"], again["timings"]["prompt_n"]) == (0, 64)
    assert again["generation_settings"]["cache_prompt"] is False


def test_id_slot_and_its_old_name_choose_the_slot(bigram):
    for slot in (1, 0, 1):
        assert bigram.ask("a", n_predict=1, id_slot=slot)["id_slot"] == slot
        assert bigram.ask("a", n_predict=1, slot_id=slot)["generation_settings"]["id_slot"] == slot


def test_an_id_slot_that_does_not_exist_means_any(bigram):
    """llama.vim counts it up with every request."""
    for name, slot in (("id_slot", 2), ("id_slot", 99), ("id_slot", -2), ("slot_id", 2), ("slot_id", -1)):
        answer = bigram.ask("a", n_predict=1, **{name: slot})
        assert answer["id_slot"] in (0, 1), (name, slot)
        assert answer["generation_settings"]["id_slot"] == -1


def test_t_max_predict_ms_ends_an_answer_that_has_a_line(bigram):
    """Without a line end it goes on."""
    stopped = bigram.ask("w", temperature=0, n_predict=2000, t_max_predict_ms=1)
    assert stopped["stop_type"] == "limit"
    assert stopped["tokens_predicted"] < 2000
    assert stopped["generation_settings"]["t_max_predict_ms"] == 1
    assert bigram.ask("a", temperature=0, n_predict=400, t_max_predict_ms=1)["tokens_predicted"] == 400


def test_what_the_answer_tells_is_up_to_the_request(bigram):
    assert bigram.ask("a", n_predict=3)["tokens"] == []
    answer = bigram.ask("a", n_predict=3, temperature=0, return_tokens=True)
    assert answer["tokens"] == tokens("aaa")
    path = "generation_settings/n_predict"
    assert bigram.ask("a", n_predict=3, response_fields=["stop", path, "no/such"]) == {"stop": True, path: 3}
    body = {"prompt": "a", "n_predict": 3, "stream": True}
    plain, timed = (
        list(bigram.client.events("/completion", {**body, "timings_per_token": value}))
        for value in (False, True)
    )
    assert all("timings" not in event for event in plain[:-1])
    assert [event["timings"]["predicted_n"] for event in timed] == [1, 2, 3, 3]


def test_bos_is_added_to_text_and_not_to_tokens(bigram):
    assert bigram.ask("ab", n_predict=0)["tokens_evaluated"] == 3
    assert bigram.ask(tokens("ab"), n_predict=0)["tokens_evaluated"] == 2
    assert bigram.ask([BOS, "ab"], n_predict=0)["tokens_evaluated"] == 3
    assert bigram.ask(["a", *tokens("b")], n_predict=0)["tokens_evaluated"] == 3
