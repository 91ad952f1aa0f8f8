"""Drafts from earlier answers: of the same owner only, within the bounds of their memory."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from support.drafts.match_search import RULES, TEXTS, ids, search

from llamad.engine.drafts.spec_types import DraftRules, automatic
from llamad.engine.testing.drafts_probe import AnswersProbe

BORDER = -1
N_RING = 256


def test_an_owner_gets_drafts_of_its_own_answers() -> None:
    answers = AnswersProbe(4, 1024)
    answers.add(7, ids([1, 2, 3, 4, 5, 6]))
    answers.add(8, ids([1, 2, 3, 40, 50, 60]))
    assert answers.draft(7, ids([9, 1, 2, 3]), automatic()) == ([4, 5, 6], 3, 1)
    assert answers.draft(8, ids([9, 1, 2, 3]), automatic()) == ([40, 50, 60], 3, 1)
    assert answers.draft(9, ids([9, 1, 2, 3]), automatic()) == ([], 0, 0)


def test_no_draft_goes_from_one_answer_to_the_next() -> None:
    answers = AnswersProbe(1, 1024)
    answers.add(0, ids([1, 2, 3]))
    answers.add(0, ids([4, 5, 6]))
    assert answers.draft(0, ids([1, 2]), automatic()) == ([3], 2, 1)
    assert answers.draft(0, ids([1, 2, 3]), automatic()) == ([], 0, 0)
    assert answers.draft(0, ids([3, BORDER, 4, 5]), automatic()) == ([6], 2, 1)


def test_the_owner_that_was_away_longest_is_dropped() -> None:
    answers = AnswersProbe(2, 1024)
    answers.add(1, ids([1, 2, 3]))
    answers.add(2, ids([1, 2, 4]))
    assert answers.draft(1, ids([1, 2]), automatic())[0] == [3]
    answers.add(3, ids([1, 2, 5]))
    assert [answers.draft(owner, ids([1, 2]), automatic())[0] for owner in (1, 2, 3)] == [[3], [], [5]]


def test_a_long_answer_is_indexed_in_pieces() -> None:
    answers = AnswersProbe(1, 65_536)
    text = list(range(100_000))
    answers.add(0, ids(text))
    assert answers.draft(0, ids(text[99_000:99_010]), automatic(4))[0] == []
    for _ in range(65):
        answers.draft(0, ids([1, 2]), automatic(4))
    assert answers.draft(0, ids(text[99_000:99_010]), automatic(4)) == (text[99_010:99_014], 10, 1)
    assert answers.draft(0, ids(text[34_000:34_010]), automatic(4))[0] == []
    assert answers.draft(0, ids(text[34_464:34_474]), automatic(4)) == (text[34_474:34_478], 10, 1)


@settings(max_examples=300)
@given(st.lists(TEXTS, max_size=60), TEXTS, RULES)
def test_the_last_answers_are_searched(texts: list[list[int]], tail: list[int], rules: DraftRules) -> None:
    """Chains are short, because every answer has tokens of its own."""
    answers = AnswersProbe(1, N_RING)
    kept: list[int] = []
    for i, text in enumerate(texts):
        own = [token + 10 * (i // 2) if token >= 0 else token for token in text]
        answers.add(0, ids(own))
        kept = [*kept, BORDER, *own][-N_RING:]
    tail = [token + 10 * (len(texts) // 2) - 10 if token >= 0 else token for token in tail]
    assert answers.draft(0, ids(tail), rules) == search(kept, tail, rules, is_own=False)
