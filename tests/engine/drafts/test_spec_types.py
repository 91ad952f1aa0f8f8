"""llama-server's n-gram types as rules of the match finder."""

from __future__ import annotations

import re
from array import array
from pathlib import Path

import pytest

from llamad.engine.drafts.spec_types import (
    PLACES_MAX,
    DraftRules,
    automatic,
    ngram_map_k4v,
    ngram_simple,
    rules_of,
)
from llamad.engine.testing.drafts_probe import LIMITS, MatchesProbe
from llamad.flags.parse import parse
from llamad.flags.types.speculation import NGRAM_TYPES

ROOT = Path(__file__).resolve().parents[3]
PERIOD = [*range(100, 160)]
DEFAULTS = rules_of(parse(["-m", "m.gguf", "--spec-type", ",".join(NGRAM_TYPES)], {}).settings.model)


def drafted(tokens: list[int], rules: DraftRules) -> tuple[list[int], int, int]:
    probe = MatchesProbe(4096)
    probe.follow(array("i", tokens))
    return probe.draft(rules)


def test_the_rules_are_those_of_the_struct() -> None:
    text = (ROOT / "ext/llamad/engine/drafts/draft_rules.pxd").read_text()
    struct = text.partition("struct DraftRules:")[2].partition("ctypedef")[0]
    assert tuple(re.findall(r"int32_t (\w+)", struct)) == DraftRules._fields
    assert LIMITS["places"] == PLACES_MAX


@pytest.mark.parametrize("name", NGRAM_TYPES)
def test_every_type_drafts_a_copy_at_its_own_length(name: str) -> None:
    rules = DEFAULTS[name]
    draft, n_match, n_places = drafted(PERIOD + PERIOD[:30], rules)
    assert draft == (PERIOD[30:] + PERIOD)[: rules.n_draft_max]
    assert (n_match, n_places) == (30, 1)
    assert drafted([*PERIOD, *PERIOD[: rules.n_match_min - 1]], rules) == ([], 0, 0)


def test_who_decides_if_a_match_continues_in_several_ways() -> None:
    """Twice 1, then once 2: the most recent, two thirds, or half."""
    key = [*range(10, 22)]
    text = [5, *key, 1, 6, *key, 1, 7, *key, 2, 8, *key]
    assert drafted(text, ngram_simple(12, 1)) == ([2], 12, 1)
    assert drafted(text, ngram_map_k4v(12, 1)) == ([1], 12, 3)
    assert drafted(text, ngram_map_k4v(12, 1, min_hits=4)) == ([], 0, 0)
    assert drafted([5, *key, 2, 9, *text], ngram_map_k4v(12, 1)) == ([], 12, 4)
    assert drafted([5, *key, 2, 9, *text], automatic(1)) == ([2], 12, 4)


@pytest.mark.parametrize("n", range(1, PLACES_MAX + 1))
def test_two_thirds_are_what_llama_server_counts(n: int) -> None:
    """A continuation wins if it was seen at least twice as often as all others together."""
    needed = -(-n * ngram_map_k4v().percent_min // 100)
    assert needed == min(k for k in range(n + 1) if k >= 2 * (n - k))
