"""Long prompts in the cache memory whose parts are cut out of whole states: streams, windows, hybrid memories. The fake
counts a token that is computed from other cells, or from another window or recurrent state, than those of the tokens
before it."""

from __future__ import annotations

import os
import random
import struct
import time
from typing import NamedTuple

import pytest
from support.states.adopting_engine import CUT, MANY, WITH_ENDS, Cut, answered, until

from llamad.protocol.blobs import Blob
from llamad.protocol.cache_memory import CacheMemory, checksum
from llamad.protocol.messages import ACTION_ERASE, ACTION_INSERT, RESULT_DONE
from llamad.ses1 import ses1

TABLE_AT, ROW_BYTES = 4096, 128
# Offsets in a row of the table.
STATE_AT, CHECKSUM_AT = 0, 104
OWN, READY = 1, 3
STATE, CHECKPOINT, PART, END = 1, 2, 3, 4
ENDS_MAX = 4
PAGE = 4096


class Row(NamedTuple):
    """What the table says about an entry."""

    at: int  # in the file, of the row
    kind: int
    n_tokens: int
    id: int
    data_at: int
    n_bytes: int
    before: int


def rows(front: CacheMemory) -> list[Row]:
    ready = []
    for i in range(400):
        at = TABLE_AT + i * ROW_BYTES
        row = os.pread(front.fd, ROW_BYTES, at)
        state, _, kind, n_tokens, id, data_at = struct.unpack_from("<IiIiQQ", row)
        if state == READY:
            (n_bytes,), (before,) = struct.unpack_from("<Q", row, 48), struct.unpack_from("<Q", row, 112)
            ready.append(Row(at, kind, n_tokens, id, data_at, n_bytes, before))
    return ready


def parts(front: CacheMemory) -> list[Row]:
    return [row for row in rows(front) if row.kind in (STATE, PART)]


def ends(front: CacheMemory) -> list[Row]:
    return [row for row in rows(front) if row.kind == END]


def text(seed: int, n: int) -> bytes:
    chance = random.Random(seed)
    return bytes(chance.randrange(33, 120) for _ in range(n))


def n_cells(engine: Cut) -> int:
    """The cells that all parts have."""
    n_one = engine.layout.piece_bytes(1)
    n_more = engine.layout.piece_bytes(2) - n_one
    return sum((row.n_bytes - 8 - 4 * row.n_tokens - n_one) // n_more + 1 for row in parts(engine.front))


def check(front: CacheMemory, kind: str) -> None:
    """Whatever an engine or the front has left can be used: no part lacks what is before it, or an end behind it."""
    known = {row.id: row for row in rows(front)}
    needed = set()
    for row in known.values():
        if row.before and row.kind != CHECKPOINT:
            before = known[row.before]
            assert before.kind in (STATE, PART)
            assert before.n_tokens >= row.n_tokens if row.kind == END else before.n_tokens < row.n_tokens
            needed.add(row.before)
    for row in parts(front):
        assert (row.kind == PART) <= (row.id in needed), row
        assert (row.kind == PART) <= (kind != "streams")


def damage(front: CacheMemory, row: Row, at: int) -> None:
    byte = os.pread(front.fd, 1, row.data_at + at)
    os.pwrite(front.fd, bytes([byte[0] ^ 4]), row.data_at + at)


kinds = pytest.mark.parametrize("kind", CUT)
with_ends = pytest.mark.parametrize("kind", WITH_ENDS)
few_kinds = pytest.mark.parametrize("kind", ["streams", "unified window", "hybrid"])
few_with_ends = pytest.mark.parametrize("kind", ["window", "unified hybrid"])


@kinds
def test_a_turn_adds_only_what_is_new(kind):
    front, turn = CacheMemory(), text(1, 700)
    with Cut(front, kind) as one:
        for n_more in (0, 300, 20, 30, 90, 400, 10, 700, 25, 60):
            turn += text(n_more, n_more)
            one.keep(turn)
            turn = answered(turn)
            assert n_cells(one) == len(turn)
            assert len(ends(front)) <= ENDS_MAX
        n = len(turn)
        assert len(ends(front)) == (0 if kind == "streams" else ENDS_MAX)
        assert max(row.n_tokens for row in rows(front)) == n
        # Each part has all tokens before it, too. Their cells are there once, and each end has no others.
        n_cells_bytes = one.layout.piece_bytes(n) - one.layout.piece_bytes(0)
        n_parts = len(parts(front))
        assert n_parts <= n // 256 + 1
        n_head = max(row.n_bytes for row in ends(front)) if ends(front) else 0
        most = n_cells_bytes + n_parts * (4 * n + 8 + one.layout.piece_bytes(1)) + ENDS_MAX * n_head
        assert sum(row.n_bytes for row in rows(front)) <= most
    check(front, kind)


@kinds
def test_forks_share_their_stem(kind):
    front, stem = CacheMemory(), text(2, 1800)
    with Cut(front, kind, n_slots=1) as one:
        one.keep(stem)
        one.keep(answered(stem) + text(3, 400))
        n_one = n_cells(one)
        assert one.keep(answered(stem) + text(4, 450)) >= len(answered(stem))
        assert n_cells(one) <= n_one + 454 + 512  # the last part of the stem has tokens of the first fork
        assert one.keep(answered(answered(stem) + text(3, 400)) + b"more") == 1808 + 400
    check(front, kind)


@kinds
def test_the_next_engine_goes_on(kind):
    front, prompt = CacheMemory(), text(7, 1500)
    with Cut(front, kind) as one:
        one.keep(prompt)
        one.keep(answered(prompt) + text(8, 500))
        n_rows = len(rows(front))
    conversation = answered(answered(prompt) + text(8, 500))
    with Cut(front, kind) as two:
        assert two.n_adopted == n_rows
        assert two.keep(conversation + b"more") == len(conversation)
        assert n_cells(two) == len(answered(conversation + b"more"))
        assert two.n_bad == 0
    check(front, kind)


@with_ends
def test_a_conversation_goes_back_to_an_earlier_end(kind):
    front, prompt = CacheMemory(), text(9, 600)
    with Cut(front, kind, n_slots=1) as one:
        one.keep(prompt)
        # It takes the place of the last part, so that the first end needs the new one.
        one.keep(answered(prompt) + text(10, 30))
        first = answered(prompt)
        assert len(ends(front)) == 2
        assert len({row.before for row in ends(front)}) == 1
        one.keep(text(11, 300))
        assert one.keep(first + text(12, 40)) == len(first)
        assert n_cells(one) <= len(first) + 34 + 304 + 512
    check(front, kind)


@few_kinds
def test_the_buffer_is_freed_when_nothing_was_saved_for_a_while(kind):
    with Cut(CacheMemory(), kind) as one:
        one.keep(text(15, 700))
        assert one.stats()["cache_buffer"] > one.layout.piece_bytes(700)
        until(lambda: one.stats()["cache_buffer"] == 0, 60)  # after 10 s
        one.keep(answered(text(15, 700)) + text(16, 700))  # and it is made again
        assert one.stats()["cache_buffer"] > one.layout.piece_bytes(1400)


@few_with_ends
def test_the_ends_that_were_used_last_stay(kind):
    front, turn, lengths = CacheMemory(), text(13, 400), []
    with Cut(front, kind) as one:
        for _ in range(8):
            one.keep(turn)
            turn = answered(turn)
            lengths.append(len(turn))
            turn += text(14, 40)
        assert sorted(row.n_tokens for row in ends(front)) == lengths[-ENDS_MAX:]


@with_ends
def test_checkpoints_are_used_behind_an_end(kind):
    front, prompt = CacheMemory(), text(15, 900)
    with Cut(front, kind, n_slots=1, n_checkpoints=32) as one:
        one.keep(prompt)
        one.keep(text(16, 700))
        n_before = one.stats()["checkpoint_used"]
        assert one.ask(prompt) >= 901 - 4
        assert one.stats()["checkpoint_used"] == n_before + 1
    with Cut(front, kind, n_slots=1, n_checkpoints=32) as two:
        assert two.ask(prompt) >= 901 - 4


@few_kinds
@pytest.mark.parametrize("i", range(4))
def test_damage_costs_only_what_needs_the_damaged_bytes(kind, i):
    front, prompt, other = CacheMemory(), text(17, 1400), text(18, 400)
    with Cut(front, kind) as one:
        one.keep(prompt)
        one.keep(other)
    mine = [row for row in rows(front) if row.n_tokens in (512, 1024, len(answered(prompt)))]
    assert len(mine) == (3 if kind == "streams" else 4)
    row = mine[i % len(mine)]
    damage(front, row, 8 + 4 * row.n_tokens + (row.n_bytes - 8 - 4 * row.n_tokens) // 2)
    with Cut(front, kind) as two:
        two.ask(prompt)
        until(lambda: two.n_bad == 1)
        assert two.ask(answered(other) + b"more") == len(answered(other))
        two.ask(text(19, 1000), id_slot=0)
        two.ask(text(20, 1000), id_slot=1)
        two.keep(answered(prompt) + b"more")
    check(front, kind)


@few_with_ends
@pytest.mark.parametrize(
    ("kind_of_row", "offset", "value"),
    [
        (PART, 8, struct.pack("<i", 90)),  # another token than the others have
        (PART, 12, struct.pack("<I", 77)),
        (END, 8, struct.pack("<i", 90)),
        (END, 8 + 4 * 304, struct.pack("<I", 77)),  # no state of llama.cpp
    ],
)
def test_what_does_not_belong_together_is_not_used(kind, kind_of_row, offset, value):
    front, prompt = CacheMemory(), text(21, 300)
    with Cut(front, kind) as one:
        one.keep(prompt)
    (row,) = [row for row in rows(front) if row.kind == kind_of_row]
    os.pwrite(front.fd, value, row.data_at + offset)
    sound = checksum(os.pread(front.fd, row.n_bytes, row.data_at))
    os.pwrite(front.fd, struct.pack("<Q", sound), row.at + CHECKSUM_AT)
    with Cut(front, kind) as two:
        assert two.ask(prompt) == 0


@few_with_ends
def test_what_lacks_a_part_or_an_end_is_dropped(kind):
    for lost in (512, 1024, 1504):
        for kind_of_row in (PART, END):
            front, prompt = CacheMemory(), text(22, 1500)
            with Cut(front, kind) as one:
                one.keep(prompt)
            for row in rows(front):
                if row.n_tokens == lost and row.kind == kind_of_row:
                    os.pwrite(front.fd, bytes([OWN]), row.at + STATE_AT)
            with Cut(front, kind) as two:
                is_there = lost != 1504 and kind_of_row == END
                assert two.n_adopted == (4 if is_there else 0)
                assert two.ask(prompt[:-1] + b"!") == 0 or is_there


@few_kinds
def test_the_front_drops_no_part_that_is_needed(kind):
    front = CacheMemory()
    with Cut(front, kind) as one:
        for seed in range(23, 27):
            one.keep(text(seed, 900))
    n_bytes = front.n_bytes
    for _ in range(12):
        n_bytes = front.shrink(max(0, n_bytes - 4 * PAGE))
        check(front, kind)
    assert (front.shrink(0), rows(front)) == (0, [])


@few_kinds
def test_a_pinned_prompt_keeps_all_its_entries(kind):
    front, prompt = CacheMemory(), text(28, 1500)
    with Cut(front, kind) as one:
        one.keep(prompt)
    (entry,) = front.entries()
    segments = front.pin(entry.id)
    assert [segment.n_tokens for segment in segments] == [512, 1024] + [1504] * (len(segments) - 2)
    assert [segment.is_end for segment in segments] == [False] * 3 + [True] * (kind != "streams")
    assert front.shrink(0) > 0
    with Cut(front, kind, mark=bytes(32)):  # which drops everything
        assert front.entries() == []
        assert [checksum(one.data) for one in segments] == [one.checksum for one in segments]
        front.unpin(entry.id)


def whole(engine: Cut, prompt: bytes) -> Blob:
    """The last entry's state, joined as SES1."""
    (entry,) = [one for one in engine.front.entries() if one.n_tokens == len(answered(prompt))]
    segments = engine.front.pin(entry.id)
    assert segments is not None
    pieces = [bytes(one.data[8 + 4 * one.n_tokens :]) for one in segments if not one.is_end]
    end = bytes(segments[-1].data[8 + 4 * entry.n_tokens :]) if segments[-1].is_end else None
    data = bytes(segments[-1].data[: 8 + 4 * entry.n_tokens]) + ses1.join(engine.layout, pieces, end)
    engine.front.unpin(entry.id)
    blob = Blob(len(data))
    blob.size = len(data)
    memoryview(blob)[:] = data
    return blob


@kinds
def test_parts_follow_a_state_that_was_inserted(kind):
    """A prompt that came from disk is one whole state; what follows it is saved in parts behind it."""
    prompt = text(29, 900)
    with Cut(CacheMemory(), kind) as one:
        one.keep(prompt)
        blob = whole(one, prompt)
    front, n = CacheMemory(), len(answered(prompt))
    with Cut(front, kind) as two:
        assert two.done(two.act(ACTION_INSERT, 0, blob, n_tokens=n, n_bytes=blob.size)).result == RESULT_DONE
        assert two.keep(answered(prompt) + text(30, 500)) == n
        assert next(row.n_tokens for row in rows(front) if row.kind == STATE) == n
        assert n + 504 <= n_cells_of(two) <= n + 504 + 20
        assert two.keep(answered(answered(prompt) + text(30, 500)) + b"more") == n + 504
        two.ask(text(31, 300), id_slot=0)
        two.ask(text(32, 300), id_slot=1)
        assert two.ask(answered(prompt) + b"another way") >= n
    check(front, kind)


@few_kinds
@pytest.mark.parametrize("has_device", [True, False])
def test_the_buffer_gives_way_to_what_would_not_fit_beside_it(kind, has_device):
    """A state that is inserted needs its room, after all entries have gone."""
    prompt = text(55, 3500)
    with Cut(CacheMemory(), kind, has_device=has_device) as one:
        one.keep(prompt)
        blob = whole(one, prompt)
    n = len(answered(prompt))
    with Cut(CacheMemory(), kind, has_device=has_device, cache_bytes=blob.size * 5 // 4) as two:
        two.keep(text(56, 1000))
        assert two.stats()["cache_buffer"] > blob.size // 4
        assert two.done(two.act(ACTION_ERASE, 0)).result == RESULT_DONE  # else it would be saved again
        assert two.done(two.act(ACTION_INSERT, 0, blob, n_tokens=n, n_bytes=blob.size)).result == RESULT_DONE
        assert two.stats()["cache_buffer"] == 0
        assert two.ask(answered(prompt) + b"more") == n


def n_cells_of(engine: Cut) -> int:
    """The cells of all entries; one that was inserted has an end, too."""
    per_cell = engine.layout.piece_bytes(2) - engine.layout.piece_bytes(1)
    return sum(
        row.n_tokens
        if row.kind == STATE and not row.before
        else (row.n_bytes - 8 - 4 * row.n_tokens) // per_cell
        for row in parts(engine.front)
    )


@few_kinds
@pytest.mark.parametrize(
    ("mine", "other"), [({"owner": 1}, {"owner": 2}), ({"owner": 1}, {}), ({"number": 1}, {"number": 2})]
)
def test_entries_belong_to_a_key_and_to_adapters(kind, mine, other):
    prompt = text(33, 800)
    with Cut(CacheMemory(), kind, n_slots=1) as one:
        one.keep(prompt, **mine)
        one.keep(text(34, 300), **mine)
        assert one.ask(prompt, **other) == 0
        one.keep(text(35, 300), **mine)
        assert one.ask(answered(prompt) + b"more", **mine) == len(answered(prompt))


@kinds
def test_memory_that_runs_out_leaves_nothing_useless(kind):
    front = CacheMemory()
    with Cut(front, kind, n_slots=1) as one:
        one.keep(text(36, 1000))
        n = sum(-(-row.n_bytes // PAGE) * PAGE for row in rows(front))
    front, most = CacheMemory(), 4 * n + (1 << 17)
    with Cut(front, kind, n_slots=1, cache_bytes=most) as one:
        for seed in range(36, 48):
            one.ask(text(seed, 1000))
            one.ask(answered(text(36, 1000)) + text(seed, 30))
            assert one.stats()["cache_bytes"] <= most
        assert one.stats()["cache_dropped"] > 0
    with Cut(front, kind, cache_bytes=most):
        check(front, kind)


@few_kinds
def test_a_state_that_is_too_large_for_the_buffer_is_saved_whole(kind):
    """The buffer and the parts would not fit into the limit together."""
    front, prompt = CacheMemory(), text(49, 3500)
    with Cut(front, kind, n_slots=1) as one:
        one.keep(prompt)
        n_state = whole(one, prompt).size
    front = CacheMemory()
    with Cut(front, kind, n_slots=1, cache_bytes=n_state + n_state // 3) as one:
        one.keep(prompt)
        assert [row.kind for row in rows(front)] == [STATE]
        one.ask(text(50, 100))
        assert one.ask(answered(prompt) + b"more") == len(answered(prompt))


@few_kinds
def test_a_finished_turn_is_saved_while_its_neighbour_writes(kind):
    front, prompt = CacheMemory(), text(51, 1200)
    with Cut(front, kind, decode_us=2000) as one:
        neighbour = one.submit(b"neighbour", n_predict=4000)
        one.wait_first(neighbour)
        one.keep(prompt)
        assert one.end(neighbour) is None
        one.port.abort(neighbour)
        one.wait(neighbour)


@pytest.mark.parametrize(("seed", "kind"), list(enumerate(CUT)))
def test_conversations_that_fork_and_engines_that_end(seed, kind):
    """Whatever is saved, shared, dropped and adopted, every token is computed from the tokens before it."""
    chance, front = random.Random(seed), CacheMemory()
    known = [text(100 + i, chance.randrange(100, 1500)) for i in range(3)]
    for _ in range(3):
        options = {
            "cache_bytes": chance.choice([MANY, 400_000]),
            "n_checkpoints": 0 if kind == "streams" else chance.choice([0, 32]),
        }
        with Cut(front, kind, **options) as engine:
            for _ in range(8):
                prompt = chance.choice(known)
                cut = chance.choice([len(prompt), chance.randrange(1, len(prompt))])
                prompt = prompt[:cut] + text(chance.randrange(1000), chance.randrange(1, 600))
                if len(prompt) > 3500:
                    continue
                engine.ask(prompt, owner=chance.choice([0, 0, 5]))
                if chance.random() < 0.2:
                    time.sleep(1.2)  # until idle prompts are saved
                known.append(answered(prompt))
                assert engine.stats()["cache_bytes"] <= options["cache_bytes"]
            assert engine.n_bad == 0
        with Cut(front, kind):
            check(front, kind)
    assert all(front.pin(entry.id) is not None for entry in front.entries())
