"""Each request of a drafter that the user named verifies a draft if it has one, whether that pays or not."""

import pytest
from support.drafts.drafted_tasks import CHAOS
from support.engine_harness import Harness

from llamad.engine.testing.fake import Fake
from llamad.engine.testing.fake_drafter import FakeDrafter


def drafted(n_tasks, *, is_named, n_slots=1, n_most=63, **options):
    """The text of each of several tasks, its drafted tokens, and the steps of all. Steps with drafts cost so much that
    they never pay."""
    fake = Fake(n_ctx=256, n_batch=128, chaos=CHAOS, token_us=100)
    drafter = FakeDrafter(fake.ctx, share=0.0, n_most=n_most)
    h = Harness(fake, n_slots=n_slots, n_ctx=256, n_batch=128)
    h.core.draft_with(drafter, -1, is_named=is_named)
    with h:
        tasks = [h.submit(b"prompt %d" % i, n_predict=40, **options) for i in range(n_tasks)]
        h.wait(*tasks)
        return (
            [h.text(task) for task in tasks],
            [h.end(task).n_drafted for task in tasks],
            h.stats()["n_steps"],
        )


@pytest.mark.parametrize("n_slots", [1, 4])
def test_every_request_tries_one(n_slots):
    plain, none, _ = drafted(8, is_named=False, n_slots=n_slots)
    named, some, _ = drafted(8, is_named=True, n_slots=n_slots)
    assert named == plain
    assert sum(none) <= 16  # it has no reason to try, but where a token was right by chance
    assert min(some) >= 1
    assert max(some) <= 8, "one is enough"


def test_a_request_without_drafts_tries_none():
    assert drafted(3, is_named=True, n_most=0)[1] == [0, 0, 0]
    assert drafted(3, is_named=True, speculative_n_max=0)[1] == [0, 0, 0]
