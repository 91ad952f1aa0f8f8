"""Text that a grammar forces is drafted: it takes fewer steps and stays the same. test_verification.py has it among
others, with drafters of any quality."""

import pytest
from support.drafts.drafted_tasks import CHAOS, FORCED, run
from support.engine_harness import Harness

from llamad.engine.drafts.spec_types import automatic
from llamad.engine.drafts.text_drafter import TextDrafter
from llamad.engine.testing.fake import Fake
from llamad.engine.testing.fake_drafter import FakeDrafter
from llamad.grammar.grammar import Grammar, Pieces

KEYS = ("temperature in the afternoon", "direction of the wind", "chance of rain in percent")
SCHEMA = "root ::= " + ' ","'.join(f'"\\"{key}\\":" [0-9]{{1,3}}' for key in KEYS)


def answer(grammar, *, n_most=None, work=-1, **options):
    """The tokens of a task and the steps that it took; n_most: the longest draft of a drafter that is always wrong."""
    fake = Fake(n_ctx=512, n_batch=128, chaos=CHAOS)
    h = Harness(fake, n_slots=1, n_ctx=512, n_batch=128, grammar_work=work)
    drafter = FakeDrafter(fake.ctx, share=0.0, n_most=n_most or 0)
    if n_most is not None:
        h.core.draft_with(drafter, 31)
    with h:
        compiled = Grammar(grammar, Pieces(h.vocab))
        task = h.submit(b"prompt", n_predict=200, grammar=compiled.id, **options)
        h.wait(task)
        return h.tokens(task), h.text(task), h.stats()["n_steps"]


@pytest.mark.parametrize("work", [-1, 0])
@pytest.mark.parametrize("n_most", [0, 9])
def test_long_keys_take_few_steps(n_most, work):
    """With no work in the step, grammar threads sample every token, so each is a step of its own."""
    plain = answer(SCHEMA, work=work)
    drafted = answer(SCHEMA, n_most=n_most, work=work)
    assert drafted[:2] == plain[:2]
    for key in KEYS:
        assert f'"{key}":'.encode() in plain[1]
    assert drafted[2] < plain[2] / 3 or work == 0


def test_a_request_without_drafts_has_none():
    plain = answer(SCHEMA)
    assert answer(SCHEMA, n_most=0, speculative_n_max=0) == plain
    assert plain[2] > answer(SCHEMA, n_most=0, speculative_n_max=5)[2] > answer(SCHEMA, n_most=0)[2]


def test_forced_text_replaces_a_draft_that_says_something_else():
    tasks = [{"samplers": "greedy", "prompt": b"p", "n_predict": 120, "grammar": FORCED}]
    plain, n_plain = run(tasks)
    forced, n_forced = run(tasks, share=0.0, n_fixed=15)
    assert forced == plain
    assert n_forced < n_plain / 2


def test_a_draft_that_says_the_same_and_goes_on_is_kept():
    """The fake counts upwards, and its prompt has the letters between those that are forced, too."""
    text = bytes(range(ord("a"), ord("z") + 1))
    grammar = 'root ::= "abcdefgh" [a-z]{4} "mnopqrst" [a-z]{6}'
    steps = []
    for knows_text in (False, True):
        fake = Fake(n_ctx=512, n_batch=256)
        h = Harness(fake, n_slots=1, n_ctx=512, n_batch=256)
        drafter = (
            TextDrafter(n_slots=1, n_ctx=512, rules=[automatic()], answers=False)
            if knows_text
            else FakeDrafter(fake.ctx, share=0.0, n_most=0)
        )
        h.core.draft_with(drafter, 31)
        with h:
            compiled = Grammar(grammar, Pieces(h.vocab))
            task = h.submit(text + b"`", grammar=compiled.id, n_predict=len(text))
            h.wait(task)
            assert h.text(task) == text
            steps.append(h.stats()["n_steps"])
    assert steps[1] < steps[0] / 1.5
