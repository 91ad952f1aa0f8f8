"""Drafts and prompts: slots draft while another one prefills, and a prompt is indexed when its first token comes."""

import random

import pytest
from support.drafts.drafted_tasks import CHAOS
from support.engine_harness import Harness

from llamad.engine.drafts.spec_types import automatic
from llamad.engine.drafts.text_drafter import TextDrafter
from llamad.engine.testing.fake import Fake
from llamad.engine.testing.fake_drafter import FakeDrafter

MEMORIES = {
    "streams": ({}, {}),
    "unified": ({"unified": True, "n_cells": 16384}, {"n_cells": 16384}),
    "gpu": ({"device_us": 50}, {"has_device": True}),
}


def answers(memory, share=None, n_slots=3, n_fixed=7, n_ubatch=64, **options):
    """The text and the end of a task that decodes, and of those whose long prompts are prefilled meanwhile; the steps
    with both a prompt and a draft; and all steps."""
    of_fake, of_core = MEMORIES[memory]
    fake = Fake(
        n_ctx=4096, n_batch=256, n_seqs=n_slots, n_ubatch=n_ubatch, chaos=CHAOS, token_us=150, **of_fake
    )
    h = Harness(fake, n_slots=n_slots, n_ctx=4096, n_batch=256, n_ubatch=n_ubatch, **of_core, **options)
    drafter = FakeDrafter(fake.ctx, share=share or 0.0)
    if share is not None:
        h.core.draft_with(drafter, n_fixed)
    with h:
        first = h.submit(b"first", n_predict=400)
        h.until(lambda: len(h.tokens(first)) > 5)
        others = [h.submit(bytes([65 + i]) * 1500, n_predict=30, n_probs=i) for i in range(n_slots - 1)]
        h.wait(first, *others)
        outcomes = [(h.text(task), h.tokens(task), h.probs(task)) for task in (first, *others)]
        mixed = [
            step
            for step in h.steps
            if any(one.is_decoding and one.n_tokens > 1 for one in step.slots)
            and any(not one.is_decoding for one in step.slots)
        ]
        assert all(step.n_tokens <= 2 * 256 for step in h.steps)
        return outcomes, len(mixed), len(h.steps)


@pytest.mark.parametrize("memory", list(MEMORIES))
def test_slots_draft_while_others_prefill(memory):
    plain, none, _ = answers(memory)
    drafted, n_mixed, _ = answers(memory, share=0.9)
    assert drafted == plain
    assert none == 0
    assert n_mixed > 3
    wrong, _, _ = answers(memory, share=0.0)
    assert wrong == plain


@pytest.mark.parametrize("memory", list(MEMORIES))
def test_a_fixed_budget_and_full_batches_have_no_drafts_beside_prompts(memory):
    plain, _, _ = answers(memory, step_tokens_max=32)
    drafted, n_mixed, _ = answers(memory, share=0.9, step_tokens_max=32)
    assert drafted == plain
    assert n_mixed == 0


@pytest.mark.parametrize("n_fixed", [-1, 63])
def test_any_width(n_fixed):
    for memory in MEMORIES:
        plain, _, _ = answers(memory, n_slots=6)
        assert answers(memory, share=0.9, n_slots=6, n_fixed=n_fixed)[0] == plain


def test_a_long_prompt_is_indexed_when_its_first_token_comes():
    """The fake counts upwards: what follows the end of the prompt is in it only once, after thousands of tokens."""
    passage = bytes(range(100))
    draw = random.Random(4)
    prompt = bytes(draw.choices(range(110, 256), k=6000)) + passage + b"\xf0" + passage[:5]
    fake = Fake(n_ctx=8192, n_batch=2048)
    h = Harness(fake, n_slots=1, n_ctx=8192, n_batch=2048, n_ubatch=512)
    h.core.draft_with(TextDrafter(n_slots=1, n_ctx=8192, rules=[automatic()], answers=False), 15)
    with h:
        task = h.submit(prompt, n_predict=40)
        h.wait(task)
        assert h.text(task) == bytes(range(5, 45))
        steps = [step for step in h.steps if step.slots[0].is_decoding]
        # Each verifies 15 tokens, the first behind the first token.
        assert len(steps) <= 4
