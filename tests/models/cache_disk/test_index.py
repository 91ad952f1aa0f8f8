"""Prefixes of prompts in the index, and which files stay."""

import random
import threading

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from support.states.fake_cache_memory import packed, tokens_of

from llamad.models.cache_disk.index import PART_MIN, Found, Index, Stored, _Tree, stored
from llamad.models.cache_disk.prefixes import BLOCK_TOKENS, Chain, Group, n_common
from llamad.models.cache_disk.row_file import END, Description
from llamad.models.cache_disk.state_rows import rows_of

SALT = b"s" * 32
GROUP = Group("model", "", 0)
DAY = 86400.0


def chain(tokens, group=GROUP, salt=SALT) -> Chain:
    return Chain(salt, group, packed(tokens))


def files(tokens, *, group=GROUP, has_end=False, used=0.0, **more) -> list[Stored]:
    """The files of a prompt; each token takes 1000 bytes, an end 5000."""
    made = []
    for row in rows_of(chain(tokens, group), has_end=has_end):
        about = Description(
            group=group,
            salt_id=b"",
            model="tiny",
            kind=row.kind,
            before=row.before,
            begin=row.begin,
            tokens=row.tokens,
            n_bytes=5000 if row.kind == END else 250 * len(row.tokens),
            checksum=0,
            needs_ends=has_end,
            created=used,
            is_named=more.get("is_named", False),
            retention_s=more.get("retention_s", 0),
            n_returns=more.get("n_returns", 0),
        )
        made.append(stored(about, about.n_bytes, used))
    return made


def put(index: Index, tokens, **more) -> None:
    for one in files(tokens, **more):
        if one.name not in index:
            for other in [] if one.is_end else index.superseded(one.about):
                index.remove(other.name)
            index.add(one)


def lengths(found: Found | None) -> list[int]:
    return [one.n_tokens for one in found.files] if found else []


@given(st.lists(st.integers(0, 3), max_size=40), st.lists(st.integers(0, 3), max_size=40))
def test_the_common_beginning_is_counted_in_tokens(one, other):
    n = next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    assert n_common(packed(one), packed(other)) == n


def test_two_prompts_share_exactly_the_digests_of_the_blocks_they_share():
    one = tokens_of(1, 5 * BLOCK_TOKENS + 7)
    other = [*one[: 3 * BLOCK_TOKENS + 5], -1, *one[3 * BLOCK_TOKENS + 6 :]]
    a, b = chain(one).digests, chain(other).digests
    assert (len(a), a[:4], a[4] != b[4], a[5] != b[5]) == (6, b[:4], True, True)
    for stranger in (Group("other", "", 0), Group("model", "key", 0), Group("model", "", 1)):
        assert not set(chain(one, stranger).digests) & set(a)
    assert not set(chain(one, salt=b"t" * 32).digests) & set(a)


def test_most_of_the_prompt_is_found_like_by_comparing_all():
    chance = random.Random(3)
    index, prompts = Index(), []
    for i in range(60):
        stem = chance.choice(prompts)[: chance.randrange(1, 1200)] if i > 5 else []
        prompts.append([*stem, *tokens_of(i, chance.randrange(1, 900))])
        put(index, prompts[-1])
    for i in range(200):
        prompt = [
            *chance.choice(prompts)[: chance.randrange(1, 1500)],
            *tokens_of(1000 + i, chance.randrange(1, 300)),
        ]
        best = max(n_common(packed(one), packed(prompt[:-1])) for one in prompts)
        part = best % BLOCK_TOKENS
        match = index.find(chain(prompt))
        n = match.n_tokens if match else 0
        assert n == best or (part < PART_MIN and n == best - part), i
        if match:
            assert lengths(match)[:-1] == [BLOCK_TOKENS * (j + 1) for j in range(len(match.blocks) - 1)]
            assert match.blocks[-1].n_tokens >= match.n_tokens


def test_a_prompt_that_needs_an_end_is_found_up_to_one():
    index, tokens = Index(), tokens_of(1, 3 * BLOCK_TOKENS + 20)
    for n in (BLOCK_TOKENS + 9, 2 * BLOCK_TOKENS, len(tokens)):
        put(index, tokens[:n], has_end=True)
    for prompt, n in (
        ([*tokens, 5], len(tokens)),
        ([*tokens[:-1], -5, 6], 2 * BLOCK_TOKENS),
        (tokens[: 2 * BLOCK_TOKENS], BLOCK_TOKENS + 9),  # the last token is computed
        ([*tokens[: BLOCK_TOKENS + 9], 5], BLOCK_TOKENS + 9),
        ([*tokens[: BLOCK_TOKENS + 8], -5, 5], 0),
    ):
        match = index.find(chain(prompt))
        assert (match.n_tokens if match else 0) == n
        if match:
            assert match.end is not None
            assert match.end.n_tokens == n
            assert len(match.blocks) == -(-n // BLOCK_TOKENS)


def test_other_keys_models_and_adapters_find_nothing():
    index, tokens = Index(), tokens_of(1, 1000)
    put(index, tokens, group=Group("model", "mine", 0))
    assert index.find(chain(tokens, Group("model", "mine", 0))) is not None
    for other in (Group("model", "", 0), Group("model", "yours", 0), Group("two", "mine", 0)):
        assert index.find(chain(tokens, other)) is None
    assert index.find(chain(tokens, Group("model", "mine", 7))) is None


def test_nothing_is_left_of_files_that_were_removed():
    index, tokens = Index(), tokens_of(1, 1000)
    put(index, tokens, has_end=True)
    for one in files(tokens, has_end=True):
        index.add(one)  # again
    assert (len(index), index.n_prompts, index.n_bytes) == (5, 1, 1_005_000)
    for name in [*index.names(), "unknown"]:
        index.remove(name)
    left = (index._blocks, index._blocks_behind, index._ends_behind)
    assert (len(index), index.n_bytes, index.find(chain(tokens)), left) == (0, 0, None, ({}, {}, {}))


def test_prompts_are_counted_like_by_looking_at_all_blocks():
    """The number is kept while files come and go, because to look at 95,000 blocks held the event loop for 50 ms."""
    chance, index = random.Random(4), Index()
    prompts = [tokens_of(i, 900) for i in range(3)]
    prompts += [[*prompts[i % 3][:n], *tokens_of(10 + i, 700)] for i, n in enumerate((256, 300, 512, 600, 1))]
    every = [one for prompt in prompts for one in files(prompt, has_end=True)]
    for _ in range(3000):
        one = chance.choice(every)
        if chance.random() < 0.5:
            index.add(one)
        else:
            index.remove(one.name)
        assert index.n_prompts == len(index.lasts())
    assert len(index) > 10


def test_a_longer_block_supersedes_its_beginnings_but_no_forks():
    index, tokens = Index(), tokens_of(1, 1000)
    put(index, tokens[:300])
    put(index, [*tokens[:280], *tokens_of(2, 100)])
    put(index, tokens[:300], group=Group("model", "key", 0))
    assert index.n_prompts == 3
    new = files(tokens[:400])[-1]
    assert [one.n_tokens for one in index.superseded(new.about)] == [300]


def names(files: list[Stored]) -> set[str]:
    return {one.name for one in files}


def removed_in_order(index: Index, n_bytes: int, now: float = DAY, **more) -> list[Stored]:
    removed = index.to_remove(n_bytes, now, **more)
    assert removed is not None
    left = {one.name: one for one in index.all()}
    for one in removed:
        del left[one.name]
        assert not [
            other for other in left.values() if other.about.begin and other.about.before == one.digest
        ]
    return removed


def test_a_long_conversation_outlives_a_hundred_titles():
    index = Index()
    put(index, tokens_of(1, 20_000), used=0.0)
    for i in range(100):
        put(index, tokens_of(2 + i, 300), used=DAY)
    removed = removed_in_order(index, 20_000_000)
    assert {one.n_tokens for one in removed} == {256, 300}


def test_conversations_lose_their_ends_first_and_shared_stems_stay():
    index, tokens = Index(), tokens_of(1, 4 * BLOCK_TOKENS)
    put(index, [*tokens, *tokens_of(2, 4 * BLOCK_TOKENS)], used=DAY / 2)
    put(index, [*tokens, *tokens_of(3, 4 * BLOCK_TOKENS)], used=0.0)
    removed = removed_in_order(index, 8 * BLOCK_TOKENS * 1000)
    assert len(removed) == 8
    assert min(one.n_tokens for one in removed) == 5 * BLOCK_TOKENS
    assert len(removed_in_order(index, 1 << 60)) == 12


def test_ends_that_a_longer_turn_supersedes_go_before_its_blocks():
    index, tokens = Index(), tokens_of(1, 1000)
    for n in (300, 600, 1000):
        put(index, tokens[:n], has_end=True)
    assert [one.n_tokens for one in removed_in_order(index, 10_000) if one.is_end] == [300, 600]
    assert len(removed_in_order(index, 1 << 60)) == len(index)


def test_ends_are_not_compared_with_the_blocks_of_all_forks():
    """Each end was compared with each block behind the same prefix, which took 1,350 ms for 3,000 conversations that
    fork in one block."""

    class Tokens(bytes):
        n_compared = 0

        def startswith(self, *prefix) -> bool:
            Tokens.n_compared += 1
            return super().startswith(*prefix)

    index, stem, n = Index(), tokens_of(1, 300), 200
    for i in range(n):
        put(index, [*stem, *tokens_of(2 + i, 100)], has_end=True)
    for one in files(stem, has_end=True):
        index.add(one)  # its end lies in all of these blocks
    every = [msgspec.structs.replace(one.about, tokens=Tokens(one.about.tokens)) for one in index.all()]
    tree = _Tree([stored(about, about.n_bytes, 0.0) for about in every], DAY, 0, set())
    assert Tokens.n_compared < 5 * n
    for block in index.all():
        if not block.is_end:
            ends = {one.name for one in index.ends_in(block) if one.about.before == block.about.before}
            assert ends == {name for name, bearers in tree._bearers.items() if block.name in names(bearers)}
    assert max(len(one) for one in tree._bearers.values()) == n + 1


def test_a_new_prompt_of_little_value_pushes_nothing_out():
    index = Index()
    put(index, tokens_of(1, 8000))
    title = files(tokens_of(2, 300))[-1]
    names = [one.name for one in files(tokens_of(1, 8000))]
    assert index.to_remove(1, 0.0, worth=1e-9) is None
    assert index.to_remove(0, 0.0, worth=0.0) == []
    assert [one.n_tokens for one in index.to_remove(1, 0.0, worth=1.0) or ()] == [8000]
    assert index.to_remove(1, 0.0, worth=1.0, kept=names) is None  # it needs them itself
    assert title.name not in index


def test_hints_of_one_key_take_no_more_than_its_share():
    index, mine, other = Index(), Group("model", "mine", 0), Group("model", "other", 0)
    for i in range(8):
        put(index, tokens_of(i, 256), group=mine, used=float(i), is_named=True, retention_s=86400)
    for i in range(8, 12):
        put(index, tokens_of(i, 256), group=other, used=float(i))
    removed = removed_in_order(index, 2 * 256_000, 20.0, bytes_max=12 * 256_000)
    assert {one.about.group for one in removed} == {mine}
    removed = removed_in_order(index, 2 * 256_000, 20.0, bytes_max=16 * 256_000)
    assert {one.about.group for one in removed} == {other}


def test_nobody_who_reads_or_chooses_waits_for_the_lock():
    index, tokens, done = Index(), tokens_of(1, 1000), []
    put(index, tokens)

    def read() -> None:
        done.append(index.find(chain([*tokens, 5])))
        done.append(index.to_remove(1, DAY))
        done.append((index.names(), index.n_prompts, index.orphans()))

    with index._lock:
        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        thread.join(30)
        assert len(done) == 3
