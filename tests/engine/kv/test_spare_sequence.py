"""What a spare sequence of a unified cache is good for, by llama.cpp itself: a slot is saved and restored in ranges,
with steps between them. docs/state.md has the rules; these tests check that llama.cpp keeps them."""

from itertools import pairwise

import numpy as np
import pytest
from support.models.tiny_contexts import Sizes, TinyContext, TinyModel
from support.models.tiny_kv_models import DELTA_NET, HYBRID_WINDOW, KINDS, SINKS, WINDOW, write_model
from support.states.real_states import continued, learned, prefill, text
from support.states.state_reader import StateReader

from llamad.ses1 import ses1

PARTIAL = 1
SLOT, OTHER, TARGET, SPARE = range(4)
N_TOKENS, RANGE = 160, 32
ALL = (*KINDS, SINKS, HYBRID_WINDOW, DELTA_NET)
HAS_CELLS = [kind for kind in ALL if kind != "mamba"]
WINDOWS = ("gemma3", SINKS)
HYBRIDS = ("jamba", DELTA_NET)  # without windows


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    opened = {kind: TinyModel(write_model(folder / f"{kind}.gguf", kind, np.float32)) for kind in ALL}
    yield opened
    for model in opened.values():
        model.close()


def context(model, n_ctx=1024, n_rollback=0, cache="f32"):
    # Without flash attention and in f32, logits do not depend on where the cells of other sequences are.
    return TinyContext(model, Sizes(n_ctx, 4, 32, 32, True, False, n_rollback), cache, flash=False)


def save_range(c, slot, p0, p1, flags=0):
    c.copy_range(slot, SPARE, p0, p1)
    state = c.driver.save(SPARE, flags)
    assert c.driver.seq_rm(SPARE, -1, -1)
    return state


def restore_range(c, slot, piece):
    assert c.driver.restore(SPARE, piece, 0)
    c.copy_range(SPARE, slot, -1, -1)
    assert c.driver.seq_rm(SPARE, -1, -1)


def step(c, *seqs):
    """Decode one more token of each sequence."""
    for seq in seqs:
        n_past = c.pos_max(seq) + 1
        assert c.driver.decode([(seq, n_past, text(1000)[n_past])]) == 0


@pytest.mark.parametrize("kind", HAS_CELLS)
def test_a_slot_that_decodes_is_saved_in_ranges(models, kind):
    """Steps of this slot and of another one go on between the ranges. Only the end is saved at once."""
    with context(models[kind]) as c:
        layout = learned(c)
        prefill(c, OTHER, text(50))
        prefill(c, SLOT, text(N_TOKENS))
        pieces = []
        for p0 in range(0, N_TOKENS, RANGE):
            ranged = save_range(c, SLOT, p0, p0 + RANGE)
            pieces.append(ses1.cut(layout, ranged, p0, p0 + RANGE))
            step(c, SLOT, OTHER)
        n_now = c.pos_max(SLOT) + 1
        pieces.append(ses1.cut(layout, save_range(c, SLOT, N_TOKENS, n_now), N_TOKENS, n_now))
        end = c.driver.save(SLOT, PARTIAL) if layout.has_end() else None
        state = c.driver.save(SLOT, 0)
        assert ses1.join(layout, pieces, end) == ses1.join(layout, [state], end)
        logits = continued(c, SLOT, n_now)
    with context(models[kind]) as c:  # undisturbed
        prefill(c, SLOT, text(N_TOKENS))
        for _ in range(N_TOKENS, n_now):
            step(c, SLOT)
        assert np.allclose(continued(c, SLOT, n_now), logits, atol=1e-4)


@pytest.mark.parametrize("kind", HAS_CELLS)
def test_a_slot_is_restored_in_ranges_beside_what_it_has(models, kind):
    """Another slot decodes between the ranges, and its logits are those that it has alone."""
    n_there = 70
    with context(models[kind]) as c:
        layout = learned(c)
        prefill(c, SLOT, text(N_TOKENS))
        state = c.driver.save(SLOT, 0)
        expected = continued(c, SLOT, N_TOKENS)
    end = ses1.cut_end(layout, state) if layout.has_end() else None
    cuts = [n_there, 90, 91, 128, N_TOKENS]
    pieces = [ses1.cut(layout, state, a, b) for a, b in pairwise(cuts)]
    with context(models[kind]) as c:
        prefill(c, OTHER, text(50))
        prefill(c, TARGET, text(n_there))
        for piece in pieces:
            restore_range(c, TARGET, piece)
            step(c, OTHER)
        if end is not None:
            assert c.driver.restore(TARGET, end, PARTIAL)
        restored = c.driver.save(TARGET, 0)
        assert ses1.cut(layout, restored, n_there, N_TOKENS) == ses1.cut(layout, state, n_there, N_TOKENS)
        assert end is None or ses1.cut_end(layout, restored) == end
        assert np.allclose(continued(c, TARGET, N_TOKENS), expected, atol=1e-4)
        others = continued(c, OTHER, 50 + len(pieces))
    with context(models[kind]) as c:  # undisturbed
        prefill(c, OTHER, text(50))
        for _ in pieces:
            step(c, OTHER)
        assert np.allclose(continued(c, OTHER, 50 + len(pieces)), others, atol=1e-4)


@pytest.mark.parametrize("kind", HAS_CELLS)
def test_ranges_need_no_cells_but_their_own(models, kind):
    n_ctx = 256
    with context(models[kind], n_ctx) as c:
        layout = learned(c)
        prefill(c, SLOT, text(N_TOKENS))
        state = c.driver.save(SLOT, 0)
        pieces = [ses1.cut(layout, state, p0, p0 + RANGE) for p0 in range(0, N_TOKENS, RANGE)]
        prefill(c, OTHER, text(n_ctx - N_TOKENS))
        # No cell is free, and saving needs none.
        assert ses1.cut(layout, save_range(c, SLOT, 32, 64), 32, 64) == pieces[1]
        assert not c.driver.restore(SPARE, pieces[1], 0)
        c.driver.seq_rm(SPARE, -1, -1)
        assert c.driver.seq_rm(SLOT, -1, -1)
        for piece in pieces:
            restore_range(c, TARGET, piece)
        if layout.has_end():
            assert c.driver.restore(TARGET, ses1.cut_end(layout, state), PARTIAL)
        assert len(c.driver.save(TARGET, 0)) == len(state)


@pytest.mark.parametrize("kind", WINDOWS)
def test_a_range_with_its_window_is_a_checkpoint_of_its_end(models, kind):
    """As long as the window's cells are still there: a window keeps them until it needs them for other tokens."""
    n = 100
    with context(models[kind]) as c:
        prefill(c, SLOT, text(n))
        checkpoint = c.driver.save(SLOT, PARTIAL)
        prefill(c, SLOT, text(N_TOKENS)[n:], n)
        assert c.driver.pos_min(SLOT) <= n - WINDOW
        late = StateReader(save_range(c, SLOT, n - WINDOW, n, PARTIAL)).cells()
        early = StateReader(checkpoint).cells()
        assert late.positions == early.positions == list(range(n - WINDOW, n))
        assert all(np.array_equal(a, b) for a, b in zip(late.rows, early.rows, strict=True))
        # Its cells go when the sequence needs room, and then the range has fewer of them, or none.
        prefill(c, SLOT, text(600)[N_TOKENS:], N_TOKENS)
        assert c.driver.pos_min(SLOT) > n
        assert StateReader(save_range(c, SLOT, n - WINDOW, n, PARTIAL)).cells().positions == []


@pytest.mark.parametrize("kind", ["mamba", *HYBRIDS])
def test_a_recurrent_state_is_copied_whole_whatever_the_range(models, kind):
    with context(models[kind]) as c:
        prefill(c, SLOT, text(N_TOKENS))
        end = c.driver.save(SLOT, PARTIAL)
        assert save_range(c, SLOT, 3, 5, PARTIAL)[8:] == end[8:]
        assert c.driver.save(SLOT, PARTIAL) == end


@pytest.mark.parametrize("kind", HYBRIDS)
def test_a_restored_range_takes_the_slots_recurrent_state_away(models, kind):
    """So the end must come last."""
    with context(models[kind]) as c:
        layout = learned(c)
        prefill(c, SLOT, text(N_TOKENS))
        state, end = c.driver.save(SLOT, 0), c.driver.save(SLOT, PARTIAL)
        prefill(c, TARGET, text(70))
        assert c.pos_max(TARGET) == 69
        restore_range(c, TARGET, ses1.cut(layout, state, 70, N_TOKENS))
        assert c.pos_max(TARGET) == -1
        assert c.driver.restore(TARGET, end, PARTIAL)
        assert c.pos_max(TARGET) == N_TOKENS - 1


@pytest.mark.parametrize("kind", HYBRIDS)
def test_an_empty_sequence_takes_the_spares_recurrent_state_away(models, kind):
    """Then a range is saved without the recurrent state, which may be larger than its cells."""
    with context(models[kind]) as c:
        layout = learned(c)
        prefill(c, SLOT, text(N_TOKENS))
        state = c.driver.save(SLOT, 0)
        c.copy_range(SLOT, SPARE, 32, 64)
        c.copy_range(TARGET, SPARE, 0, 1)  # it is empty
        assert c.driver.save(SPARE, 0) == ses1.join(layout, [ses1.cut(layout, state, 32, 64)], seq=SPARE)
        assert c.driver.seq_rm(SPARE, -1, -1)
        assert c.driver.save(SLOT, 0) == state


def test_a_copy_has_the_recurrent_state_before_a_rollback(models):
    """So the end of a slot is saved from the slot itself, never from the spare."""
    with context(models[DELTA_NET], n_rollback=4) as c:
        prefill(c, SLOT, text(96))
        assert c.driver.decode([(SLOT, 96 + i, token) for i, token in enumerate(text(4, seed=9))]) == 0
        before = c.driver.save(SLOT, PARTIAL)
        assert c.driver.seq_rm(SLOT, 98, -1)
        after = c.driver.save(SLOT, PARTIAL)
        copied = save_range(c, SLOT, 0, 98, PARTIAL)
        n_head = 8 + 4 + 8  # up to the position, which is the same in both
        assert copied[n_head:] == before[n_head:] != after[n_head:]
        assert c.driver.save(SLOT, PARTIAL) == after
