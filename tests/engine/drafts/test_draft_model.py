"""A draft model changes nothing but the number of steps, and its sequences follow those of the slots. Both models are
fakes with random logits; the draft model's differ at some places."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.drafts.drafted_tasks import CHAOS, MEMORIES, SAMPLERS, TASKS, greedy, outcome, run
from support.drafts.model_pair import Pair
from support.engine_harness import Harness
from support.timing_retries import learned

from llamad.engine.drafts.draft_model import DraftModel
from llamad.engine.testing.fake import Fake


@settings(max_examples=50, deadline=None)
@given(
    tasks=st.lists(TASKS, min_size=1, max_size=6),
    astray=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    text=st.sampled_from([None, 0.0, 0.9]),
    n_fixed=st.sampled_from([-1, 1, 3, 7, 15]),
    memory=st.sampled_from(list(MEMORIES)),
    has_device=st.booleans(),
)
def test_text_probabilities_and_ends_are_those_of_plain_decoding(
    tasks, astray, text, n_fixed, memory, has_device
):
    plain, _ = run(tasks, memory=memory)
    pair = Pair(astray=astray, text=text, n_fixed=n_fixed, memory=memory, has_device=has_device)
    drafted, _ = pair.run(tasks)
    assert drafted == plain


@pytest.mark.parametrize("memory", list(MEMORIES))
def test_a_good_draft_model_saves_steps(memory):
    plain, n_plain = run(greedy(2), memory=memory)
    drafted, n_drafted = Pair(memory=memory).run(greedy(2))
    assert drafted == plain
    assert n_drafted < n_plain / 3


def test_tokens_are_not_decoded_twice():
    pair = Pair(n_slots=1)
    pair.run(greedy(1, n_predict=80))
    # Of each draft the last token is left, which is decoded with the next one; all others are decoded when drafted.
    assert pair.draft.n_tokens_decoded <= 80 + 3 + 1


def test_a_shifting_context_has_the_same_text():
    tasks = greedy(3, n_predict=300, context_shift=True)
    plain, n_plain = run(tasks, n_ctx=96)
    drafted, n_drafted = Pair(n_ctx=96).run(tasks)
    assert drafted == plain
    assert n_drafted < n_plain / 2


def test_tasks_that_outgrow_the_cache_have_the_same_text():
    tasks = greedy(6, n_predict=120)
    plain, _ = run(tasks, memory="tight")
    drafted, _ = Pair(memory="tight").run(tasks)
    assert drafted == plain


def test_a_prefix_of_another_slot_is_copied():
    pair = Pair(n_ctx=512)
    prompt = bytes(range(65, 91)) * 12
    with pair.h as h:
        first = h.submit(prompt, n_predict=20)
        h.wait(first)
        n_before = pair.draft.n_tokens_decoded
        others = [h.submit(prompt + b"%d" % i, n_predict=20) for i in range(3)]
        h.wait(*others)
    assert pair.draft.n_tokens_decoded - n_before < 2 * len(prompt)


def test_requests_without_drafts_are_not_followed():
    pair = Pair()
    with pair.h as h:
        task = h.submit(b"x" * 40, n_predict=20, speculative_n_max=0)
        h.wait(task)
    assert pair.draft.n_tokens_decoded == 0


def test_a_draft_model_that_fails_is_left_alone():
    pair = Pair()
    pair.draft.fail_next(-3, n_times=1000)
    plain, _ = run(greedy(2))
    with pair.h as h:
        h.sampling = SAMPLERS["greedy"]
        ids = [h.submit(b"p%d" % i, n_predict=100) for i in range(2)]
        h.wait(*ids)
        assert [outcome(h, task) for task in ids] == plain
    assert pair.model.n_failures == 3


def test_a_model_that_is_always_wrong_is_hardly_used():
    pair = Pair(astray=1.0, n_fixed=-1, n_slots=1)
    _, n_steps = pair.run(greedy(1, n_predict=200))
    assert n_steps >= 195
    assert pair.draft.n_tokens_decoded < 400  # drafts of 7 tokens in every step would be 1,400


def test_a_model_that_is_always_wrong_reads_a_few_texts_only():
    """A trial reads the text of a request, and may begin anywhere in it. There are 5 trials in so many steps."""
    pair = Pair(astray=1.0, n_fixed=-1, n_slots=1, n_ctx=512, is_named=True)
    with pair.h as h:
        h.sampling = SAMPLERS["greedy"]
        for i in range(20):
            h.wait(h.submit(b"%c" % (65 + i) * 50, n_predict=300))
    assert pair.draft.n_tokens_decoded < 20 * 350 / 2


def test_all_decodes_for_a_gpu_have_one_shape():
    pair = Pair(n_slots=1, has_device=True)
    pair.run(greedy(1, n_predict=80))
    # Every decode after the prompt's has one token, so that there are as many as tokens.
    assert pair.draft.n_decodes >= pair.draft.n_tokens_decoded - 4
    assert pair.draft.n_tokens_decoded <= 80 + 80 // 8 + 4


def test_each_request_has_its_own_limits():
    pair = Pair()
    limits = [
        {},
        {"speculative_n_max": 1},
        {"speculative_p_min": 1.0},
        {"speculative_n_max": 3, "speculative_n_min": 9},
    ]
    with pair.h as h:
        h.sampling = SAMPLERS["greedy"]
        pair.target.block(True)
        tasks = [h.submit(b"p%d" % i, n_predict=100, **one) for i, one in enumerate(limits)]
        pair.target.block(False)
        h.wait(*tasks)
        free, single, sure, few = (h.end(task).n_drafted for task in tasks)
    assert free > 80
    # A step of a right draft gives one token more than the draft has.
    assert 45 < single < 55
    assert sure == 0
    assert 70 < few < 80


def test_a_warm_up_leaves_nothing():
    pair = Pair()
    assert pair.model.warm_up(1) == 0
    assert pair.draft.n_tokens_decoded == 1
    plain, _ = run(greedy(2))
    assert pair.run(greedy(2))[0] == plain


def costly(astray, n_slots=1):
    """How many steps 300 tokens take where a step takes 2 ms, a decode of the draft model a third of it, and the first
    decodes of a shape longer, as on a GPU; and how many tokens the draft model decodes."""
    kind = {"n_ctx": 512, "n_batch": 256, "n_seqs": n_slots, "chaos": CHAOS}
    target = Fake(**kind, decode_us=2000, token_us=30, shape_us=1500)
    draft = Fake(**kind, decode_us=650, token_us=10, shape_us=1000, astray=astray)
    h = Harness(target, n_slots=n_slots, n_ctx=512, n_batch=256, has_device=True)
    model = DraftModel(
        draft.ctx,
        n_slots=n_slots,
        n_ctx=512,
        n_batch=256,
        n_vocab=259,
        n_max=-1,
        n_min=0,
        p_min=0.0,
        has_device=True,
    )
    assert h.core.draft_with(None, -1, is_named=True)
    h.core.draft_model(model)
    with h:
        h.sampling = SAMPLERS["greedy"]
        h.wait(*[h.submit(b"%d" % i * 100, n_predict=300) for i in range(n_slots)])
        return h.stats()["n_steps"], draft.n_tokens_decoded


@learned
def test_a_good_model_is_used_though_its_first_decodes_are_slow():
    n_steps, _ = costly(0.02)
    assert n_steps < 240


@learned
def test_a_bad_model_reads_no_more_than_it_must():
    _, n_decoded = costly(1.0)
    assert n_decoded < 250
