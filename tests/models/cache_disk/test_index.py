"""Prefixes of prompts in the index, and which entries stay."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.states.fake_cache_memory import packed, tokens_of

from llamad.models.cache_disk.index import Entry, Index
from llamad.models.cache_disk.prefixes import BLOCK_TOKENS, Chain, Group, n_common, split
from llamad.models.cache_disk.value import Worth, value

SALT = b"s" * 32
GROUP = Group("model", "", 0)


def chain(tokens, group=GROUP, salt=SALT) -> Chain:
    return Chain(salt, group, packed(tokens))


def entry(tokens, name=None, *, group=GROUP, is_whole=False, n_bytes=1000, used=0.0, **more) -> Entry:
    made = chain(tokens, group)
    end = made.end(len(tokens))
    return Entry(
        name=name or end.hex(),
        group=group,
        n_tokens=len(tokens),
        n_bytes=n_bytes,
        is_whole=is_whole,
        has_session=more.get("has_session", False),
        created=more.get("created", used),
        used=used,
        hashes=made.hashes,
        end=end,
    )


@given(st.lists(st.integers(0, 3), max_size=40), st.lists(st.integers(0, 3), max_size=40))
def test_the_common_beginning_is_counted_in_tokens(one, other):
    n = next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    assert n_common(packed(one), packed(other)) == n


def test_two_prompts_share_exactly_the_hashes_of_the_blocks_they_share():
    one = tokens_of(1, 5 * BLOCK_TOKENS + 7)
    other = [*one[: 3 * BLOCK_TOKENS + 5], -1, *one[3 * BLOCK_TOKENS + 6 :]]
    a, b = chain(one).hashes, chain(other).hashes
    assert (len(a), a[:3], a[3] != b[3], a[4] != b[4]) == (5, b[:3], True, True)
    assert split(b"".join(a)) == a
    for stranger in (Group("other", "", 0), Group("model", "key", 0), Group("model", "", 1)):
        assert not set(chain(one, stranger).hashes) & set(a)
    assert not set(chain(one, salt=b"t" * 32).hashes) & set(a)


def test_the_end_is_a_hash_of_exactly_these_tokens():
    tokens = tokens_of(1, 2 * BLOCK_TOKENS + 50)
    whole = chain(tokens)
    ends = [whole.end(n) for n in range(len(tokens) + 1)]
    assert len(set(ends)) == len(ends)
    assert ends[BLOCK_TOKENS + 3] == chain(tokens[: BLOCK_TOKENS + 3]).end(BLOCK_TOKENS + 3)


def test_the_entry_with_most_of_the_prompt_is_found_like_by_comparing_all():
    chance = random.Random(3)
    index, prompts = Index(), []
    for i in range(60):
        stem = chance.choice(prompts)[: chance.randrange(1, 9) * BLOCK_TOKENS] if i > 5 else []
        prompts.append([*stem, *tokens_of(i, chance.randrange(1, 900))])
        index.add(entry(prompts[-1], str(i)))
    for i in range(200):
        prompt = [
            *chance.choice(prompts)[: chance.randrange(1500)],
            *tokens_of(1000 + i, chance.randrange(300)),
        ]
        best = max(n_common(packed(one), packed(prompt)) // BLOCK_TOKENS for one in prompts) * BLOCK_TOKENS
        found = index.find(chain(prompt))
        assert (found.n_tokens if found else 0) == best
        if found:
            stored = prompts[int(found.entry.name)]
            assert n_common(packed(stored), packed(prompt)) >= best


def test_an_entry_that_cannot_be_cut_is_found_only_by_a_prompt_with_all_of_it():
    index = Index()
    tokens = tokens_of(1, 3 * BLOCK_TOKENS + 20)
    index.add(entry(tokens, "long", is_whole=True))
    index.add(entry(tokens[: BLOCK_TOKENS + 9], "short", is_whole=True))
    found = index.find(chain([*tokens, 5, 6]))
    assert found is not None
    assert (found.entry.name, found.n_tokens) == ("long", len(tokens))
    found = index.find(chain([*tokens[:-1], -5, 6]))
    assert found is not None
    assert (found.entry.name, found.n_tokens) == ("short", BLOCK_TOKENS + 9)
    assert index.find(chain(tokens[: BLOCK_TOKENS + 9])) is None  # the last token is computed


def test_other_keys_models_and_adapters_find_nothing():
    index, tokens = Index(), tokens_of(1, 1000)
    index.add(entry(tokens, group=Group("model", "mine", 0)))
    assert index.find(chain(tokens, Group("model", "mine", 0))) is not None
    for other in (Group("model", "", 0), Group("model", "yours", 0), Group("two", "mine", 0)):
        assert index.find(chain(tokens, other)) is None
    assert index.find(chain(tokens, Group("model", "mine", 7))) is None


def test_nothing_is_left_of_an_entry_that_was_removed():
    index, tokens = Index(), tokens_of(1, 1000)
    index.add(entry(tokens, "a", n_bytes=10))
    index.add(entry(tokens[:500], "b", n_bytes=5))
    index.add(entry(tokens, "a", n_bytes=20))
    assert (len(index), index.n_bytes, "a" in index) == (2, 25, True)
    for name in ("a", "a", "b"):
        index.remove(name)
    assert (len(index), index.n_bytes, index.find(chain(tokens)), index._by_block) == (0, 0, None, {})


def test_a_longer_entry_supersedes_its_beginnings_but_no_forks():
    index, tokens = Index(), tokens_of(1, 1000)
    index.add(entry(tokens[:600], "beginning"))
    index.add(entry([*tokens[:400], *tokens_of(2, 300)], "fork"))
    index.add(entry(tokens[:500], "of another", group=Group("model", "key", 0)))
    index.add(entry(tokens[:300], "whole", is_whole=True))
    assert [one.name for one in index.superseded(entry(tokens, "new"))] == ["beginning"]
    assert index.superseded(entry(tokens, "new", is_whole=True)) == []


def test_a_long_conversation_outlives_a_hundred_titles():
    index, day = Index(), 24 * 3600.0
    index.add(entry(tokens_of(1, 40_000), "conversation", n_bytes=40_000_000, used=0.0))
    for i in range(100):
        index.add(entry(tokens_of(2 + i, 300), f"title{i}", n_bytes=300_000, used=day))
    removed = index.to_remove(20_000_000, day)
    assert removed is not None
    assert all(one.name.startswith("title") for one in removed)
    assert len(removed) == 67


def test_a_new_entry_of_little_value_pushes_nothing_out():
    index = Index()
    index.add(entry(tokens_of(1, 8000), "old", n_bytes=8_000_000))
    title = entry(tokens_of(2, 300), "title", n_bytes=300_000)
    assert index.to_remove(1, 0.0, title) is None
    longer = entry(tokens_of(3, 9000), "longer", n_bytes=9_000_000)
    assert [one.name for one in index.to_remove(1, 0.0, longer) or ()] == ["old"]
    assert index.to_remove(0, 0.0, title) == []


BASE = {"n_tokens": 1000, "n_bytes": 1_000_000, "idle_seconds": 60.0}


@pytest.mark.parametrize(
    ("more", "less"),
    [
        ({"has_returned": True}, {}),
        ({"has_session": True}, {}),
        ({"has_returned": True}, {"has_session": True}),
        ({}, {"is_superseded": True}),
        ({}, {"is_superseded": True, "has_returned": True, "has_session": True}),
        ({}, {"idle_seconds": 1e6}),
        ({}, {"n_bytes": 2_000_000}),
        ({"n_tokens": 2000, "n_bytes": 2_000_000}, {}),
    ],
)
def test_what_makes_an_entry_worth_more(more, less):
    assert value(Worth(**{**BASE, **more})) > value(Worth(**{**BASE, **less})) > 0
