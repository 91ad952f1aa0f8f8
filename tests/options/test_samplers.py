"""`samplers`, `seed` and `logit_bias`: who chooses, in which order, and what is pushed."""

from collections import Counter

import pytest
from support import sampler_reference
from support.models.bigram_model import BOS, DICE, EOS, PIECES, logits, token, tokens

ROW = sampler_reference.ranked(logits(token("a")))


def letters(row):
    return {PIECES[one] for one, p in sampler_reference.probabilities(row).items() if p > 0.01}


# The order. Temperature 3 flattens: behind it half of the probability takes more letters.

FLAT = {"temperature": 3.0, "top_p": 0.5}


def test_the_order_is_the_lists(bigram):
    cut_first = sampler_reference.top_p(ROW, 0.5)
    cut_last = sampler_reference.top_p(sampler_reference.temperature(ROW, 3.0), 0.5)
    assert len(cut_first) < len(cut_last)
    assert set(bigram.text("a", **FLAT, samplers=["top_p", "temperature"])) == letters(cut_first)
    assert set(bigram.text("a", **FLAT, samplers=["temperature", "top_p"])) == letters(cut_last)
    assert bigram.text("a", **FLAT) == bigram.text("a", **FLAT, samplers=["top_p", "temperature"])


@pytest.mark.parametrize(
    ("names", "same"),
    [
        (["temp", "nucleus"], ["temperature", "top_p"]),
        ("tp", ["temperature", "top_p"]),
        ("pt", ["top_p", "temperature"]),
        (["Top-P", "TEMPERATURE"], ["top_p", "temperature"]),
        (["top_k", "tfs", "typical_p", "top_p", "min_p", "temp"], "kfypmt"),
        (
            ["dry", "top_nsigma", "top_k", "tfs_z", "typ_p", "top_p", "min_p", "xtc", "temperature"],
            "dskfypmxt",
        ),
    ],
    ids=str,
)
def test_old_names_new_names_and_letters_mean_the_same(bigram, names, same):
    options = {**FLAT, "min_p": 0.1, "typical_p": 0.9}
    first, second = (bigram.ask("a", **options, samplers=one) for one in (names, same))
    assert first["content"] == second["content"]
    assert first["generation_settings"]["samplers"] == second["generation_settings"]["samplers"]
    assert all(len(name) > 2 for name in first["generation_settings"]["samplers"])


def test_a_sampler_that_is_not_listed_is_not_used(bigram):
    assert set(bigram.text("a", top_k=1)) == {"a"}
    assert set(bigram.text("a", top_k=1, samplers=["temperature"])) == set(DICE)
    assert set(bigram.text("a", top_k=1, temperature=0, samplers=[])) == set(DICE)


def test_a_sampler_listed_twice_works_twice(bigram):
    once, twice = (bigram.text("a", temperature=0.5, samplers=["temp"] * n) for n in (1, 2))
    assert twice == bigram.text("a", temperature=0.25)
    assert once == bigram.text("a", temperature=0.5)
    assert Counter(twice)["a"] > Counter(once)["a"]
    # A cut to half of the half.
    halves = sampler_reference.top_p(sampler_reference.top_p(ROW, 0.7), 0.7)
    assert set(bigram.text("a", top_p=0.7, samplers=["top_p", "top_p"])) == letters(halves)


def test_the_default_list_is_echoed(bigram):
    assert bigram.ask("a")["generation_settings"]["samplers"] == [
        "dry",
        "top_n_sigma",
        "top_k",
        "tfs_z",
        "typ_p",
        "top_p",
        "min_p",
        "xtc",
        "temperature",
    ]


# The seed.


def test_a_seed_is_a_text(bigram):
    assert bigram.text("a", seed=7) == bigram.text("a", seed=7) != bigram.text("a", seed=8)


@pytest.mark.parametrize("seed", [-1, None, 2**32 - 1])
def test_a_random_seed_is_another_each_time_and_is_told(bigram, seed):
    first, second = (bigram.ask("a", seed=seed) for _ in range(2))
    assert first["content"] != second["content"]
    used = first["generation_settings"]["seed"]
    assert 0 <= used < 2**32 - 1
    assert bigram.text("a", seed=used) == first["content"]


# The bias. The likeliest letters are a, then b, then c.

A, B, C = (token(letter) for letter in "abc")


@pytest.mark.parametrize(
    ("bias", "first"),
    [
        ([[B, 0.5]], "b"),
        ([[B, 0.2]], "a"),
        ([[A, -0.5]], "b"),
        ([[A, False]], "b"),
        ([["a", False]], "b"),
        ([["ab", False]], "c"),
        ([["ab", -1.0]], "c"),
        ([[A, False], [B, False]], "c"),
        ([[B, 0.2], [B, 0.2]], "b"),
        ({str(B): 0.5}, "b"),
        ({str(A): -100, "b": False}, "c"),
        ({}, "a"),
        ([], "a"),
        (None, "a"),
    ],
    ids=str,
)
def test_a_bias_changes_what_is_likeliest(bigram, bias, first):
    assert bigram.greedy("a", n_predict=1, logit_bias=bias) == first


def test_a_forbidden_token_never_comes(bigram):
    assert set(bigram.text("a", logit_bias=[["a", False]])) == set(DICE) - {"a"}


def test_the_bias_is_echoed_as_tokens(bigram):
    settings = bigram.ask("a", logit_bias=[["ab", -1.5], [C, False]])["generation_settings"]
    assert settings["logit_bias"] == [
        {"token": A, "bias": -1.5},
        {"token": B, "bias": -1.5},
        {"token": C, "bias": None},
    ]


def test_ignore_eos_forbids_the_end(bigram):
    ended = bigram.ask("q", temperature=0)
    assert (ended["content"], ended["stop_type"], ended["tokens_predicted"]) == ("", "eos", 1)
    ignored = bigram.ask("q", temperature=0, n_predict=6, ignore_eos=True)
    assert (ignored["content"], ignored["stop_type"]) == ("rqrqrq", "limit")
    assert ignored["generation_settings"]["ignore_eos"] is True
    forbidden = ignored["generation_settings"]["logit_bias"]
    assert forbidden
    assert {one["bias"] for one in forbidden} == {None}
    assert bigram.greedy("q", n_predict=1, logit_bias=[[EOS, False]]) == "r"


def test_the_models_logits_are_what_the_table_says(bigram):
    """The tokenizer too: what these tests compute with is what the server has."""
    assert bigram.client.post("/tokenize", {"content": "abé", "add_special": True}).json["tokens"] == [
        BOS,
        *tokens("abé"),
    ]
