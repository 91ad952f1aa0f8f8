"""Drafts of any quality change nothing but the number of steps: over a fake model with random logits, a task has the
tokens, probabilities and end that it has without drafts, whatever its samplers, grammar, limits and neighbours."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engine_harness import GREEDY, Harness, sampling

from llamad.engine.testing.fake import Fake
from llamad.engine.testing.fake_drafter import FakeDrafter
from llamad.grammar.grammar import Grammar, Pieces
from llamad.protocol.messages import EVENT_ADMITTED

CHAOS = 77
LETTERS = 'root ::= ("a" | "b" | "c" | [d-z] | " " | [A-Z])* "."'

SAMPLERS = {
    "greedy": GREEDY,
    "temperature": sampling(["temperature"], temperature=0.7, seed=5),
    "usual": sampling(
        ["top_k", "top_p", "min_p", "temperature"], top_k=20, top_p=0.9, temperature=0.4, seed=6
    ),
    "penalties": sampling(
        ["penalties", "temperature"], repeat_penalty=1.3, frequency_penalty=0.2, temperature=0.5
    ),
    "dry": sampling(["dry", "temperature"], dry_multiplier=0.8, temperature=0.3, seed=8),
    "xtc": sampling(["xtc", "temperature"], xtc_probability=0.5, temperature=0.6, seed=9),
    "adaptive": sampling(["adaptive_p"], adaptive_target=0.6, seed=10),
    "mirostat": sampling([], mirostat=2, seed=11),
}
MEMORIES = {
    "streams": {},
    "unified": {"unified": True, "n_cells": 2048},
    "tight": {"unified": True, "n_cells": 256},
    "window": {"unified": True, "n_cells": 2048, "n_swa": 32},
}


def outcome(h, task):
    end = h.end(task)
    seen = [
        getattr(end, name, None) for name in ("n_decoded", "stop_type", "stop_word", "truncated", "failure")
    ]
    return h.text(task), h.tokens(task), h.probs(task), seen


def run(tasks, *, share=None, n_fixed=-1, memory="streams", n_slots=4, n_ctx=256, seed=1, **options):
    """The outcomes of tasks that run together, and how many steps they took. share: of the drafts that are right; None:
    there are none."""
    kind = {"n_ctx": n_ctx, "n_batch": 128, "n_seqs": n_slots, "chaos": CHAOS, **MEMORIES[memory]}
    fake = Fake(**kind)
    cells = {"n_cells": kind.get("n_cells", 0), "n_swa": kind.get("n_swa", 0)}
    if cells["n_swa"]:
        cells["n_window"] = -(-(cells["n_swa"] * n_slots + 128) // 256) * 256
    h = Harness(fake, n_slots=n_slots, n_ctx=n_ctx, n_batch=128, cache_bytes=1 << 20, **cells, **options)
    drafter = FakeDrafter(fake.ctx, share=share or 0.0, seed=seed)
    if share is not None:
        h.core.draft_with(drafter, n_fixed)
    with h:
        compiled = Grammar(LETTERS, Pieces(h.vocab))
        ids = []
        fake.block(True)
        for task in tasks:
            given = dict(task)
            h.sampling = SAMPLERS[given.pop("samplers")]
            if given.pop("grammar", False):
                given["grammar"] = compiled.id
            ids.append(h.submit(given.pop("prompt"), **given))
        fake.block(False)
        h.wait(*ids)
        results = [outcome(h, task) for task in ids]
        n_steps = h.stats()["n_steps"]
    return results, n_steps


TASKS = st.fixed_dictionaries(
    {
        "samplers": st.sampled_from(list(SAMPLERS)),
        "prompt": st.binary(min_size=1, max_size=40),
        "n_predict": st.integers(1, 90),
    },
    optional={
        "grammar": st.just(True),
        "n_probs": st.integers(1, 3),
        "post_sampling_probs": st.booleans(),
        "stop": st.lists(st.binary(min_size=1, max_size=1), min_size=1, max_size=2).map(tuple),
        "stream": st.booleans(),
    },
)


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


def greedy(n=4, n_predict=100, **options):
    return [{"samplers": "greedy", "prompt": b"p%d" % i, "n_predict": n_predict, **options} for i in range(n)]


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
