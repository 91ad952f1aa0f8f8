"""The match finder, compared with a search that looks at every place of the text."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.drafts.match_search import N_SHORT, REPEATED, RULES, TEXTS, TOKENS, ids, search

from llamad.engine.drafts.spec_types import DraftRules, automatic, ngram_mod, ngram_simple
from llamad.engine.testing.drafts_probe import LIMITS, MatchesProbe


def probe_of(tokens: list[int], n_max: int = 4096) -> MatchesProbe:
    probe = MatchesProbe(n_max)
    while probe.follow(ids(tokens)):
        pass
    return probe


@settings(max_examples=1500)
@given(TEXTS | REPEATED, RULES)
def test_the_longest_match_wins_and_its_places_vote(text: list[int], rules: DraftRules) -> None:
    assert probe_of(text).draft(rules) == search(text, text, rules, is_own=True)


@settings(max_examples=400)
@given(TEXTS | REPEATED, RULES, st.data())
def test_a_followed_text_is_like_a_fresh_one(text: list[int], rules: DraftRules, data: st.DataObject) -> None:
    probe = MatchesProbe(256)
    for _ in range(data.draw(st.integers(1, 12))):
        change = data.draw(st.sampled_from(["more", "cut", "shift", "edit", "another"]))
        if change == "more":
            text = (text + data.draw(TEXTS | REPEATED))[:N_SHORT]
        elif change == "cut":
            text = text[: data.draw(st.integers(0, len(text)))]
        elif change == "shift":
            keep = data.draw(st.integers(0, len(text)))
            text = text[:keep] + text[keep + data.draw(st.integers(0, 20)) :]
        elif change == "edit" and text:
            i = data.draw(st.integers(0, len(text) - 1))
            text = [*text[:i], data.draw(TOKENS), *text[i + 1 :]]
        else:
            text = data.draw(TEXTS)
        if change != "more":
            probe.agree(ids(text))
        assert probe.follow(ids(text)) == 0
        assert probe.n_indexed == len(text)
        assert probe.draft(rules) == search(text, text, rules, is_own=True)


def test_a_cut_and_another_end_are_noticed_without_agreeing() -> None:
    text = list(range(100)) + list(range(50))
    probe = probe_of(text)
    assert probe.draft(automatic(5)) == ([50, 51, 52, 53, 54], 32, 1)
    probe.follow(ids(text[:110]))
    assert probe.draft(automatic(5)) == ([10, 11, 12, 13, 14], 10, 1)
    probe.follow(ids([*text[:90], 3, 4, 5, 6, 7, 8, 9, 10, 20, 21, 22]))
    assert probe.draft(automatic(3)) == ([23, 24, 25], 3, 1)


# --- bounds -------------------------------------------------------------------------------------------------------


def test_a_long_text_is_indexed_in_pieces() -> None:
    text = random.Random(3).choices(range(50_000), k=100_000)
    probe = MatchesProbe(131_072)
    left = [probe.follow(ids(text))]
    while left[-1]:
        left.append(probe.follow(ids(text)))
    assert left == [max(0, len(text) - LIMITS["piece"] * i) for i in range(1, len(left) + 1)]
    assert probe.follow(ids([*text, *text[70_000:70_008]])) == 0
    assert probe.draft(automatic(8)) == (text[70_008:70_016], 8, 1)
    # Much is cut, so the rest is indexed again; a little is cut, so nothing is.
    assert probe.follow(ids(text[:60_000])) == 60_000 - LIMITS["piece"]
    while probe.follow(ids(text[:60_000])):
        pass
    assert probe.follow(ids(text[:59_000])) == 0
    assert probe.follow(ids([*text[:59_000], *text[10:16]])) == 0
    assert probe.draft(automatic(2)) == (text[16:18], 6, 1)


@pytest.mark.parametrize("period", [1, 2, 3, 50])
@pytest.mark.parametrize("rules", [automatic(), ngram_simple(), ngram_mod(1024)])
def test_repetitions_take_bounded_time(period: int, rules: DraftRules) -> None:
    n = 30_000
    text = [7 + i % period for i in range(n)]
    probe = MatchesProbe(32_768)
    while probe.follow(ids(text)):
        pass
    before = probe.n_steps
    assert probe.draft(rules)[0] == [7 + i % period for i in range(n, n + rules.n_draft_max)]
    assert probe.n_steps - before <= LIMITS["steps"]


def test_a_chain_that_is_too_long_ends_the_search() -> None:
    """The only match of three tokens is behind a thousand of two, which is all that the search sees."""
    text = [1, 2, 3, 4] + [token for i in range(1000) for token in (1000 + i, 2, 3, 5)] + [1, 2, 3]
    probe = probe_of(text, 8192)
    before = probe.n_steps
    assert probe.draft(automatic(1))[0] == [5]
    assert probe.n_steps - before <= LIMITS["steps"]


def test_a_text_that_does_not_fit_drafts_nothing() -> None:
    probe = MatchesProbe(256)
    assert probe.follow(ids([1, 2, 3, 4] * 65)) == 0
    assert probe.draft(automatic()) == ([], 0, 0)
    probe.follow(ids([1, 2, 3, 4] * 64))
    assert probe.draft(automatic(2))[0] == [1, 2]
    probe.follow(ids([1, 2, 3, 4] * 64 + [1]))
    assert probe.draft(automatic()) == ([], 0, 0)
    probe.follow(ids([1, 2, 3, 4] * 64))
    probe.clear()
    assert probe.draft(automatic()) == ([], 0, 0)


@pytest.mark.skipif("ASAN_OPTIONS" in os.environ, reason="the sanitizer keeps freed memory for a while")
def test_memory_is_freed() -> None:
    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    tokens = ids([i % 1000 for i in range(60_000)])
    sizes = []
    for i in range(60):
        probe = MatchesProbe(65_536)
        while probe.follow(tokens):
            pass
        if i % 20 == 19:
            sizes.append(resident())
    assert sizes[-1] - sizes[0] < 4 << 20
