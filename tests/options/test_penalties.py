"""Penalties and DRY: greedy answers, which a few lines of arithmetic foretell."""

import pytest
from support import sampler_reference
from support.models.bigram_model import BOS, NL, PIECES, logits, token, tokens

N = 12


def foretold(prompt, n=N, **penalties):
    """The greedy answer under these penalties."""
    history = [BOS, *tokens(prompt)]
    text = ""
    for _ in range(n):
        row = sampler_reference.penalized(logits(history[-1]), history, **penalties)
        history.append(row.index(max(row)))
        text += "\n" if history[-1] == NL else PIECES[history[-1]]
    return text


@pytest.mark.parametrize(
    ("option", "penalties"),
    [
        ({"repeat_penalty": 2.0}, {"repeat": 2.0}),
        ({"repeat_penalty": 1.6}, {"repeat": 1.6}),
        ({"presence_penalty": 1.5}, {"presence": 1.5}),
        ({"frequency_penalty": 0.37}, {"frequency": 0.37}),
        ({"frequency_penalty": -0.37}, {"frequency": -0.37}),
    ],
    ids=str,
)
def test_a_penalty_alone(bigram, option, penalties):
    prompt = "i" if min(option.values()) > 0 else "kkkkkkk"  # a negative one rewards what was said
    text = bigram.greedy(prompt, **option)
    assert text == foretold(prompt, **penalties)
    assert text != bigram.greedy(prompt) == "i" * N
    assert bigram.ask(prompt, **option)["generation_settings"].items() >= option.items()


def test_repeat_last_n_says_how_far_back(bigram):
    prompt, penalty = "ijkkk", {"repeat_penalty": 4.0}
    seen = set()
    for n in (0, 1, 2, 4, 64, -1):
        text = bigram.greedy(prompt, **penalty, repeat_last_n=n)
        assert text == foretold(prompt, repeat=4.0, last_n=256 if n < 0 else n)
        seen.add(text)
    assert len(seen) >= 4
    assert bigram.greedy(prompt, **penalty, repeat_last_n=0) == bigram.greedy(prompt)


def test_repeat_last_n_of_minus_one_is_the_context(bigram):
    """The letter i is 100 tokens back: within the context, but not within the default of 64."""
    prompt, penalty = "i" + "k" * 100, {"presence_penalty": 1.5, "n_predict": 1}
    assert bigram.greedy(prompt, **penalty) == "i"
    assert bigram.greedy(prompt, **penalty, repeat_last_n=-1) == "j"
    settings = bigram.ask(prompt, **penalty, repeat_last_n=-1)["generation_settings"]
    assert settings["repeat_last_n"] == settings["n_ctx"] == 256


@pytest.mark.parametrize(
    "option", [{"repeat_penalty": 2.0}, {"presence_penalty": 2.5}, {"frequency_penalty": 1.5}]
)
def test_penalize_nl_says_whether_the_line_end_is_spared(bigram, option):
    penalties = {name.removesuffix("_penalty"): value for name, value in option.items()}
    spared = bigram.greedy("\n", **option)
    assert spared == foretold("\n", **penalties, spared=NL) == "\n" * N
    assert bigram.greedy("\n", **option, penalize_nl=False) == spared
    penalized = bigram.greedy("\n", **option, penalize_nl=True)
    assert penalized == foretold("\n", **penalties)
    assert "w" in penalized


def test_penalize_nl_is_echoed(bigram):
    for value in (True, False):
        assert bigram.ask("a", penalize_nl=value)["generation_settings"]["penalize_nl"] is value
    assert bigram.ask("a")["generation_settings"]["penalize_nl"] is False


# DRY. After "lmnolmn" the loop would go on with o; p is 0.1 behind. The repetition before o is 3 long ("lmn").
LOOP = "lmnolmn"
DRY = {"dry_multiplier": 1.0, "n_predict": 1}


def after_loop(bigram, **options):
    return bigram.greedy(LOOP, **{**DRY, **options})


def test_dry_breaks_a_loop(bigram):
    """1 * 1.75 ** (3 - 2) is more than 0.1."""
    assert after_loop(bigram, dry_multiplier=0.0) == "o"
    assert after_loop(bigram) == "p"


def test_dry_multiplier_is_the_strength(bigram):
    assert after_loop(bigram, dry_multiplier=0.05) == "o"  # 0.05 * 1.75 < 0.1
    assert after_loop(bigram, dry_multiplier=0.06) == "p"  # 0.06 * 1.75 > 0.1


def test_dry_base_is_the_growth(bigram):
    assert after_loop(bigram, dry_multiplier=0.05, dry_base=1.9) == "o"
    assert after_loop(bigram, dry_multiplier=0.05, dry_base=2.1) == "p"


def test_dry_allowed_length_is_what_may_repeat(bigram):
    assert after_loop(bigram, dry_allowed_length=3) == "p"
    assert after_loop(bigram, dry_allowed_length=4) == "o"


def test_dry_penalty_last_n_is_how_far_back_it_looks(bigram):
    """The last four tokens hold "olmn" once: no repetition is seen."""
    assert after_loop(bigram, dry_penalty_last_n=4) == "o"
    assert after_loop(bigram, dry_penalty_last_n=7) == "p"
    assert after_loop(bigram, dry_penalty_last_n=-1) == "p"
    assert after_loop(bigram, dry_penalty_last_n=0) == "o"


def test_dry_sequence_breakers_end_a_repetition(bigram):
    assert after_loop(bigram, dry_sequence_breakers=["n"]) == "o"
    # A breaker further back only shortens what repeats: "mn" is left, which is as long as may be.
    assert after_loop(bigram, dry_sequence_breakers=["l"]) == "p"
    assert after_loop(bigram, dry_sequence_breakers=["l"], dry_multiplier=0.09) == "o"  # 0.09 * 1.75 ** 0
    assert after_loop(bigram, dry_sequence_breakers=[], dry_multiplier=0.09) == "p"
    assert after_loop(bigram, dry_sequence_breakers=["x"]) == "p"


def test_dry_twice_penalizes_twice(bigram):
    once, twice = ({"samplers": ["dry"] * n + ["temperature"], "dry_multiplier": 0.05} for n in (1, 2))
    assert (after_loop(bigram, **once), after_loop(bigram, **twice)) == ("o", "p")


def test_dry_options_are_echoed(bigram):
    options = {
        "dry_multiplier": 0.5,
        "dry_base": 2.5,
        "dry_allowed_length": 5,
        "dry_penalty_last_n": 17,
        "dry_sequence_breakers": ["a", "é"],
    }
    assert bigram.ask("a", **options)["generation_settings"].items() >= options.items()


def test_penalties_come_first_unless_the_list_places_them(bigram):
    """Behind a cut to one token they have nothing left to change."""
    options = {"repeat_penalty": 2.0, "top_k": 1}
    first = foretold("i", repeat=2.0)
    assert bigram.greedy("i", **options) == first
    assert bigram.greedy("i", **options, samplers=["top_k", "temperature"]) == first
    assert bigram.greedy("i", **options, samplers=["penalties", "top_k"]) == first
    assert bigram.greedy("i", **options, samplers=["top_k", "penalties"]) == "i" * N
    assert bigram.greedy("i", **options, samplers="ke") == "i" * N


def test_penalties_twice_penalize_twice(bigram):
    """3 / 1.4 is still the most, 3 / 1.4 / 1.4 is not."""
    options = {"repeat_penalty": 1.4, "n_predict": 1}
    assert bigram.greedy("i", **options, samplers=["penalties", "temperature"]) == "i"
    assert bigram.greedy("i", **options, samplers=["penalties", "penalties", "temperature"]) == "j"
    assert token("j") == logits(token("i")).index(2.0)
