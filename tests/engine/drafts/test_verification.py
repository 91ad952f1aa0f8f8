"""Drafts of any quality change nothing but the number of steps: over a fake model with random logits, a task has the
tokens, probabilities and end that it has without drafts, whatever its samplers, grammar, limits and neighbours."""

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.drafts.drafted_tasks import CHAOS, MEMORIES, TASKS, greedy, memory_options, run
from support.engine_harness import Harness

from llamad.engine.testing.fake import Fake
from llamad.engine.testing.fake_drafter import FakeDrafter
from llamad.protocol.messages import EVENT_ADMITTED


@settings(max_examples=60, deadline=None)
@given(
    tasks=st.lists(TASKS, min_size=1, max_size=6),
    share=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    n_fixed=st.sampled_from([1, 3, 7, 15, 40]),
    memory=st.sampled_from(list(MEMORIES)),
    grammar_work=st.sampled_from([0, 1 << 40]),
    seed=st.integers(1, 1000),
)
def test_text_probabilities_and_ends_are_those_of_plain_decoding(
    tasks, share, n_fixed, memory, grammar_work, seed
):
    plain, _ = run(tasks, memory=memory, grammar_work=grammar_work)
    drafted, _ = run(tasks, share=share, n_fixed=n_fixed, memory=memory, grammar_work=grammar_work, seed=seed)
    assert drafted == plain


@pytest.mark.parametrize("memory", list(MEMORIES))
def test_right_drafts_save_steps_and_wrong_ones_cost_none(memory):
    plain, n_plain = run(greedy(2), memory=memory)
    right, n_right = run(greedy(2), share=1.0, n_fixed=7, memory=memory)
    wrong, n_wrong = run(greedy(2), share=0.0, n_fixed=7, memory=memory)
    assert right == wrong == plain
    assert n_right < n_plain / 2
    assert n_wrong <= n_plain + 8


@pytest.mark.parametrize("n_fixed", [-1, 7])
def test_a_shifting_context_has_the_same_text(n_fixed):
    tasks = greedy(3, n_predict=300, context_shift=True)
    plain, _ = run(tasks, n_ctx=96)
    drafted, _ = run(tasks, share=0.8, n_fixed=n_fixed, n_ctx=96)
    assert drafted == plain


def test_tasks_that_outgrow_the_cache_have_the_same_text():
    tasks = greedy(6, n_predict=120)
    plain, _ = run(tasks, memory="tight")
    drafted, _ = run(tasks, share=0.9, n_fixed=15, memory="tight")
    assert drafted == plain


@pytest.mark.parametrize("n_fixed", [-1, 7, 63])
def test_fillers_have_room(n_fixed):
    """On a GPU idle slots between decoding ones have as many rows as these."""
    tasks = [task | {"n_predict": 20 + 60 * (i % 3)} for i, task in enumerate(greedy(16))]
    plain, _ = run(tasks, n_slots=16, has_device=True)
    drafted, _ = run(tasks, share=0.9, n_fixed=n_fixed, n_slots=16, has_device=True)
    assert drafted == plain


def test_recurrent_memories_do_not_draft():
    fake = Fake(recurrent=True, chaos=CHAOS)
    drafter = FakeDrafter(fake.ctx, share=1.0)
    with Harness(fake, can_share=False) as h:
        h.core.draft_with(drafter, 7)
        task = h.submit(n_predict=20)
        h.wait(task)
    assert drafter.n_asked == 0


@pytest.mark.parametrize("memory", ["recurrent", "hybrid"])
def test_a_state_that_is_rolled_back_is_not_copied(memory):
    """llama.cpp takes tokens back at the next decode only, and a copy would still have them. The fake counts that."""
    fake = Fake(n_ctx=256, n_batch=128, n_seqs=2, chaos=CHAOS, **MEMORIES[memory])
    h = Harness(fake, n_slots=2, n_ctx=256, n_batch=128, **memory_options(memory, 2))
    assert h.core.draft_with(FakeDrafter(fake.ctx, share=0.3), 7, 7)
    with h:
        for i in range(8):
            first = h.submit(b"p%d" % i, n_predict=20, id_slot=0, group=1 + i)
            h.wait(first)
            tokens = [*h.core.slot_tokens(0), h.tokens(first)[-1]]
            packed = struct.pack(f"<{len(tokens)}i", *tokens)
            h.wait(h.submit(ids=packed, n_predict=5, id_slot=1, group=1 + i))


def test_a_decode_without_room_for_drafts_is_repeated_without_them():
    fake = Fake(n_ctx=256, n_batch=128, chaos=CHAOS)
    drafter = FakeDrafter(fake.ctx, share=1.0)
    h = Harness(fake, n_slots=1, n_ctx=256, n_batch=128)
    h.core.draft_with(drafter, 7)
    with h:
        fake.refuse_more_than(6)
        task = h.submit(b"hello", n_predict=40)
        h.wait(task)
        assert h.end(task).n_decoded == 40
        assert h.stats()["n_refused"] == 0


def test_tasks_that_are_aborted_leave_exact_memories():
    """check_cells at the end compares each sequence with its slot."""
    fake = Fake(n_ctx=512, n_batch=128, chaos=CHAOS, decode_us=200)
    drafter = FakeDrafter(fake.ctx, share=0.7)
    draw = random.Random(3)
    h = Harness(fake, n_slots=4, n_ctx=512, n_batch=128)
    h.core.draft_with(drafter, 7)
    with h:
        for _ in range(30):
            task = h.submit(b"x" * draw.randrange(1, 60), n_predict=200)
            if draw.random() < 0.5:
                h.until(lambda: any(kind == EVENT_ADMITTED for kind, _ in h.order))
                h.port.abort(task)
        h.wait(*h.events)
