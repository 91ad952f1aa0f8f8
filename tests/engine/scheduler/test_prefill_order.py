"""Whose prompt is prefilled next: clients take turns, and the prompts of one client come in their order."""

import pytest
from support.engine_harness import Harness

from llamad.client.events import Admitted
from llamad.engine.testing.fake import Fake
from llamad.protocol.messages import EVENT_DONE

LONG = 1600  # tokens; 16 fit a step


def finished(h: Harness) -> list[int]:
    """The tasks that are done, in that order."""
    return [task for kind, task in h.order if kind == EVENT_DONE]


@pytest.fixture
def fake():
    return Fake(script=b"x", n_ctx=2048, n_batch=64)


def harness(fake: Fake, n_slots: int = 4) -> Harness:
    return Harness(fake, n_slots=n_slots, n_ctx=2048, n_batch=64, step_tokens_max=16)


def submit_together(h: Harness, fake: Fake, *prompts: tuple[int, bytes]) -> list[int]:
    """Submit prompts of clients while the engine stands still, so that all of them are there at the next step."""
    fake.block(True)
    first = h.submit(b"first", client=99)
    h.wait_first(first, Admitted)
    tasks = [h.submit(prompt, client=client) for client, prompt in prompts]
    fake.block(False)
    h.wait(first, *tasks)
    return tasks


def test_a_short_prompt_does_not_wait_for_the_long_ones_of_another_client(fake):
    with harness(fake) as h:
        one, two, short = submit_together(h, fake, (1, b"a" * LONG), (1, b"b" * LONG), (2, b"short"))
        assert finished(h).index(short) < finished(h).index(one) < finished(h).index(two)


def test_the_prompts_of_one_client_come_in_their_order(fake):
    with harness(fake) as h:
        one, short = submit_together(h, fake, (1, b"a" * LONG), (1, b"short"))
        assert finished(h).index(one) < finished(h).index(short)


def test_many_short_prompts_do_not_keep_a_long_one_waiting(fake):
    with harness(fake, n_slots=2) as h:
        prompts = [(1, b"%03d" % i + b"b" * 90) for i in range(60)]
        long, *_ = submit_together(h, fake, (2, b"a" * 800), *prompts)
        # The long prompt has half of the steps: it is done when others have had about as many tokens.
        n_before = finished(h).index(long)
        assert n_before < 20


def test_a_client_that_was_away_has_no_claim_to_the_time_before(fake):
    with harness(fake) as h:
        h.wait(h.submit(b"hello", client=1))  # client 1 has used little so far, and client 2 a lot
        h.wait(h.submit(b"c" * LONG, client=2))
        one, two = submit_together(h, fake, (1, b"a" * 800), (2, b"b" * 400))
        assert finished(h).index(two) < finished(h).index(one)
