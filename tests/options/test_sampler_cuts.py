"""The samplers that cut the distribution, and those that bend it: what is drawn is what the definition leaves.

The letters a to h follow each other independently with known probabilities, so one answer is 200 draws.
"""

import math
from collections import Counter

import pytest
from support import sampler_reference
from support.models.bigram_model import DICE, PIECES, logits, token

ROW = sampler_reference.ranked(logits(token("a")))
N_DRAWS = 600


def letters(row, least=1e-9):
    """What of a row may be drawn; with `least` what must be among some hundred draws."""
    return {PIECES[one] for one, p in sampler_reference.probabilities(row).items() if p > least}


def draws(bigram, **options):
    """Three seeds, so that a rare letter has its chance and no answer needs the whole context."""
    return "".join(bigram.text("a", **{**options, "seed": seed}) for seed in (1, 2, 3))


def assert_drawn_from(text, row):
    """The letters of the row and no others, each about as often as it should be."""
    assert len(text) == N_DRAWS
    assert letters(row, 0.015) <= set(text) <= letters(row)
    counts = Counter(text)
    for one, p in sampler_reference.probabilities(row).items():
        spread = 4 * math.sqrt(N_DRAWS * p * (1 - p)) + 1
        assert abs(counts[PIECES[one]] - N_DRAWS * p) <= spread, (PIECES[one], counts, p)


def test_without_any_sampler_every_letter_has_its_probability(bigram):
    assert letters(ROW) == set(DICE)
    assert_drawn_from(draws(bigram), ROW)


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ({"top_k": 3}, sampler_reference.top_k(ROW, 3)),
        ({"top_k": 1}, sampler_reference.top_k(ROW, 1)),
        ({"top_p": 0.5}, sampler_reference.top_p(ROW, 0.5)),
        ({"top_p": 0.7}, sampler_reference.top_p(ROW, 0.7)),
        ({"top_p": 0.0}, ROW[:1]),
        ({"min_p": 0.35}, sampler_reference.min_p(ROW, 0.35)),
        ({"min_p": 1.0}, ROW[:1]),
        ({"typical_p": 0.3}, sampler_reference.typical(ROW, 0.3)),
        ({"typical_p": 0.6}, sampler_reference.typical(ROW, 0.6)),
        ({"tfs_z": 0.6}, sampler_reference.tail_free(ROW, 0.6)),
        ({"tfs_z": 0.8}, sampler_reference.tail_free(ROW, 0.8)),
        ({"top_n_sigma": 0.05}, sampler_reference.top_n_sigma(ROW, 0.05)),
        ({"top_n_sigma": 0.15}, sampler_reference.top_n_sigma(ROW, 0.15)),
        ({"temperature": 2.0}, sampler_reference.temperature(ROW, 2.0)),
        ({"temperature": 0.5}, sampler_reference.temperature(ROW, 0.5)),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_one_option_alone_leaves_what_its_definition_leaves(bigram, option, expected):
    changes = letters(expected) != letters(ROW) or "temperature" in option
    assert changes, "this value would prove nothing"
    assert_drawn_from(draws(bigram, **option), expected)
    (name,) = option
    assert bigram.ask("a", **{"n_predict": 1, **option})["generation_settings"][name] == option[name]


@pytest.mark.parametrize(
    "option",
    [
        {"top_k": 0},
        {"top_k": -1},
        {"top_p": 1.0},
        {"min_p": 0.0},
        {"typical_p": 1.0},
        {"tfs_z": 1.0},
        {"top_n_sigma": -1.0},
        {"xtc_probability": 0.0, "xtc_threshold": 0.1},
        {"xtc_probability": 1.0, "xtc_threshold": 0.51},
        {"dynatemp_range": 0.0, "dynatemp_exponent": 3.0},
        {"mirostat": 0, "mirostat_tau": 0.1, "mirostat_eta": 0.0},
        {"min_keep": 100},
    ],
    ids=str,
)
def test_a_neutral_value_changes_nothing(bigram, option):
    assert bigram.text("a", **option) == bigram.text("a")


def test_typical_p_drops_the_likeliest_where_it_is_no_surprise(bigram):
    """That is what sets it apart from top_p."""
    text = draws(bigram, typical_p=0.3)
    assert "a" not in text


def test_temperature_zero_takes_the_likeliest(bigram):
    for t in (0, -1):
        assert bigram.text("a", temperature=t, n_predict=50) == "a" * 50


def test_dynamic_temperature_follows_the_entropy(bigram):
    """top_k makes the number of candidates known; the temperature is then a matter of arithmetic."""
    eight = ROW[:8]
    plain = draws(bigram, top_k=8)
    wide = draws(bigram, top_k=8, dynatemp_range=0.9)
    steep = draws(bigram, top_k=8, dynatemp_range=0.9, dynatemp_exponent=20.0)
    assert_drawn_from(plain, eight)
    assert_drawn_from(wide, sampler_reference.dynamic_temperature(eight, 1.0, 0.9, 1.0))
    assert_drawn_from(steep, sampler_reference.dynamic_temperature(eight, 1.0, 0.9, 20.0))
    n_likely = [sum(text.count(letter) for letter in "ab") for text in (wide, plain, steep)]
    assert n_likely[0] < n_likely[1] < n_likely[2]


def test_xtc_drops_the_likeliest(bigram):
    assert_drawn_from(draws(bigram, xtc_probability=1.0, xtc_threshold=0.1), sampler_reference.xtc(ROW, 0.1))
    assert_drawn_from(draws(bigram, xtc_probability=1.0, xtc_threshold=0.2), sampler_reference.xtc(ROW, 0.2))
    assert "a" not in draws(bigram, xtc_probability=1.0, xtc_threshold=0.2)


def test_xtc_probability_says_how_often(bigram):
    """Half of the draws are without the letter a, so it comes half as often."""
    n = draws(bigram, xtc_probability=0.5, xtc_threshold=0.2).count("a")
    expected = 0.5 * DICE["a"]
    assert abs(n - N_DRAWS * expected) <= 4 * math.sqrt(N_DRAWS * expected * (1 - expected))


@pytest.mark.parametrize("cut", [{"top_p": 0.1}, {"min_p": 1.0}, {"typical_p": 0.01}])
def test_min_keep_is_what_a_cut_leaves_at_least(bigram, cut):
    assert len(set(draws(bigram, **cut))) == 1
    assert len(set(draws(bigram, **cut, min_keep=3))) == 3


def test_mirostat_2_cuts_at_a_surprise(bigram):
    """With a learning rate of 0 the bound stays at twice the target."""
    narrow = draws(bigram, mirostat=2, mirostat_tau=1.4, mirostat_eta=0.0)
    assert_drawn_from(narrow, sampler_reference.mirostat_2(ROW, 2.8))
    wide = draws(bigram, mirostat=2, mirostat_tau=2.0, mirostat_eta=0.0)
    assert_drawn_from(wide, sampler_reference.mirostat_2(ROW, 4.0))


def test_mirostat_1_cuts_at_a_rank(bigram):
    for tau, n_left in ((0.5, 1), (3.5, 2), (8.0, 5)):
        expected = sampler_reference.mirostat_1(ROW, 2 * tau)
        assert len(expected) == n_left
        assert_drawn_from(draws(bigram, mirostat=1, mirostat_tau=tau, mirostat_eta=0.0), expected)


@pytest.mark.parametrize("eta", [0.1, 0.2])
def test_mirostat_learns_at_its_rate(bigram, eta):
    """While only one letter is under the bound, nothing surprises: the bound rises by eta * tau a token."""
    tau = 0.5
    n_alone = math.ceil((-math.log2(DICE["b"]) - 2 * tau) / (eta * tau))
    text = bigram.text("a", mirostat=2, mirostat_tau=tau, mirostat_eta=eta)
    n_seen = len(text) - len(text.lstrip("a"))
    assert n_alone <= n_seen <= n_alone + 8


def test_mirostat_takes_the_place_of_the_others(bigram):
    options = {"mirostat": 2, "mirostat_tau": 2.0, "mirostat_eta": 0.0}
    assert bigram.text("a", **options, top_k=1) == bigram.text("a", **options)
