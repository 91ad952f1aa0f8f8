"""Shifts of slots, over the fake model: which tokens they drop, and which memories refuse them."""

import pytest
from support.engine_harness import Harness, learn_layout
from support.states.slot_actions import PROMPT, fill, restore, save, tokens_of, told

from llamad.engine.testing.fake import Fake
from llamad.protocol.messages import (
    ACTION_SHIFT,
    RESULT_CANNOT,
    RESULT_DONE,
    RESULT_OUTSIDE,
)
from llamad.ses1 import ses1


@pytest.mark.parametrize(
    ("n_keep", "n_discard", "n_left"), [(0, 5, 15), (1, 5, 15), (5, 15, 5), (0, 20, 0), (19, 1, 19)]
)
def test_a_shift_drops_tokens(n_keep, n_discard, n_left):
    held = tokens_of(PROMPT)
    assert len(held) == 20
    with Harness(Fake()) as h:
        fill(h, 0)
        acted = h.done(h.act(ACTION_SHIFT, 0, n_keep=n_keep, n_discard=n_discard))
        assert (acted.result, acted.n_tokens) == (RESULT_DONE, n_left)
        assert told(h, 0) == held[:n_keep] + held[n_keep + n_discard :]
        _, blob = save(h, 0)
        assert ses1.n_tokens(blob) == n_left
        if n_left:
            assert ses1.check(known_layout(), blob, 259, 512)[0] == n_left
        fill(h, 0, b"and another")


def known_layout():
    h = Harness(Fake())
    return learn_layout(h.core, 5, 0)


@pytest.mark.parametrize(
    ("n_keep", "n_discard"),
    [(-1, 5), (0, 0), (0, -1), (0, 21), (20, 1), (2**31 - 1, 2**31 - 1), (1, 2**31 - 1)],
)
def test_a_shift_outside_the_slot(n_keep, n_discard):
    with Harness(Fake()) as h:
        fill(h, 0)
        acted = h.done(h.act(ACTION_SHIFT, 0, n_keep=n_keep, n_discard=n_discard))
        assert (acted.result, acted.n_tokens) == (RESULT_OUTSIDE, 20)
        assert told(h, 0) == tokens_of(PROMPT)


def test_moves_are_done_before_a_state_is_read_or_written():
    """The fake counts a state that is read with moves or copies still to do; with all slots full too."""
    fake = Fake()
    with Harness(fake, n_slots=2) as h:
        for slot in (0, 1):
            fill(h, slot, PROMPT + bytes([65 + slot]))
        h.done(h.act(ACTION_SHIFT, 0, n_keep=3, n_discard=4))
        n_decodes = fake.n_decodes
        acted, blob = save(h, 0)
        assert acted.result == RESULT_DONE
        assert fake.n_decodes == n_decodes + 1
        assert save(h, 1)[0].result == RESULT_DONE
        assert fake.n_decodes == n_decodes + 1  # there was nothing left to do
        h.done(h.act(ACTION_SHIFT, 0, n_keep=3, n_discard=4))
        assert restore(h, 1, blob).result == RESULT_DONE
        assert told(h, 1) == tokens_of(PROMPT)[:3] + tokens_of(PROMPT + b"A")[7:]


def test_a_copy_is_done_before_a_state_is_read():
    fake = Fake()
    with Harness(fake, n_slots=3) as h:
        text = PROMPT * 5
        fill(h, 0, text)
        task = h.submit(text + b"!", id_slot=1, n_predict=1)
        h.wait(task)
        assert fake.n_copies == 1
        assert save(h, 1)[0].result == RESULT_DONE


@pytest.mark.parametrize(("n_keep", "n_discard"), [(1, 3), (5, 15)])
def test_memories_that_cannot_be_shifted(n_keep, n_discard):
    for fake, options in (
        (Fake(can_shift=False), {}),
        (Fake(can_cut=False), {"can_share": False}),  # recurrent: the state has seen them
        (Fake(), {"group_n": 2, "group_w": 8}),
    ):
        with Harness(fake, **options) as h:
            fill(h, 0)
            before = fake.cells(0)
            acted = h.done(h.act(ACTION_SHIFT, 0, n_keep=n_keep, n_discard=n_discard))
            if options or n_keep + n_discard < 20:
                assert acted.result == RESULT_CANNOT
                assert fake.cells(0) == before
            else:  # a cut at the end is no move
                assert acted.result == RESULT_DONE
            assert h.done(h.act(ACTION_SHIFT, 0, n_keep=0, n_discard=acted.n_tokens)).result == RESULT_DONE
            assert fake.held(0) == 0


def test_a_shift_and_what_a_sliding_window_has_lost():
    fake = Fake()
    with Harness(fake, n_swa=4) as h:
        fill(h, 0)
        fake.lose(16)  # of 20
        for n_keep, n_discard, result in (
            (10, 10, RESULT_CANNOT),  # its last tokens would want a window before 10
            (10, 7, RESULT_CANNOT),  # three are left behind the gap: the window reaches over it
            (10, 6, RESULT_DONE),  # the window is full of what is left
            (0, 14, RESULT_DONE),
        ):
            assert h.done(h.act(ACTION_SHIFT, 0, n_keep=n_keep, n_discard=n_discard)).result == result
            fake.lose(0)
            fill(h, 0)
            fake.lose(16)
        fake.lose(0)
        assert h.done(h.act(ACTION_SHIFT, 0, n_keep=10, n_discard=7)).result == RESULT_DONE
