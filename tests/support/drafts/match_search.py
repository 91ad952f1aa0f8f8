"""What the match finder must draft: a search that looks at every place of a text, and short texts for it."""

from __future__ import annotations

from array import array
from collections import Counter

from hypothesis import strategies as st

from llamad.engine.drafts.spec_types import DraftRules
from llamad.engine.testing.drafts_probe import LIMITS

ROW = -4  # an id of a row of embeddings
N_SHORT = 60  # texts up to this length have no chain that is longer than a search visits
TOKENS = st.sampled_from([5, 6, 7]) | st.sampled_from([5, 6, 7, 8, 9, ROW])
TEXTS = st.lists(TOKENS, max_size=N_SHORT - 20)
REPEATED = st.builds(
    lambda text, n: (text * 20)[:n], st.lists(TOKENS, min_size=1), st.integers(0, N_SHORT - 20)
)
RULES = st.builds(
    DraftRules,
    n_match_min=st.integers(1, 6),
    n_draft_min=st.integers(0, 4),
    n_draft_max=st.integers(0, 20),
    n_per_match=st.integers(0, 3),
    n_places_min=st.integers(0, 3),
    n_places_max=st.integers(1, LIMITS["places"]),
    percent_min=st.integers(0, 100),
)


def ids(tokens: list[int]) -> array[int]:
    return array("i", tokens)


def n_common(text: list[int], place: int, tail: list[int], limit: int) -> int:
    n = 0
    while n < min(limit, place, len(tail)) and text[place - 1 - n] == tail[-1 - n] >= 0:
        n += 1
    return n


def search(text: list[int], tail: list[int], rules: DraftRules, is_own: bool) -> tuple[list[int], int, int]:
    """Return what the match finder must draft."""
    least = max(2, rules.n_match_min)
    limit = max(LIMITS["match"], least)
    lengths = {place: n_common(text, place, tail, limit) for place in range(1, len(text)) if text[place] >= 0}
    n_match = max(lengths.values(), default=0)
    places = [place for place in sorted(lengths, reverse=True) if lengths[place] == n_match]
    places = places[: rules.n_places_max]
    if n_match < least or len(places) < rules.n_places_min:
        return [], 0, 0
    n_max = rules.n_draft_max
    if rules.n_per_match:
        n_max = min(n_max, rules.n_per_match * n_match)
    draft, agreeing = [], list(places)
    while len(draft) < n_max:
        following = text + draft if is_own else text
        at = [place + len(draft) for place in agreeing]
        votes = Counter(following[i] for i in at if i < len(following) and following[i] >= 0)
        if not votes:
            break
        token, n = max(votes.items(), key=lambda item: item[1])  # the first, if there are several
        if n < max(1, -(-len(places) * rules.percent_min // 100)):
            break
        draft.append(token)
        agreeing = [
            p for p, i in zip(agreeing, at, strict=True) if i < len(following) and following[i] == token
        ]
    return (draft if len(draft) >= rules.n_draft_min else []), n_match, len(places)
