"""What the front reads out of a channel."""

import time

import pytest
from support.engine_harness import Harness

from llamad.client.text_event import TextEvent
from llamad.engine.testing.fake import Fake


@pytest.mark.parametrize("n_tasks", [1, 2])
def test_a_text_is_followed_if_the_next_event_is_a_text_of_its_task(n_tasks):
    fake = Fake()
    with Harness(fake, n_slots=2) as h:
        fake.block(True)
        tasks = [h.submit(b"a", n_predict=5) for _ in range(n_tasks)]
        fake.block(False)
        while h.port.stats()["n_predicted"] < 5 * n_tasks:  # nothing is read before all is written
            time.sleep(0.001)
        h.wait(*tasks)
        for task in tasks:
            texts = [event for event in h.events[task] if isinstance(event, TextEvent)]
            assert len(texts) == 5
            # Two tasks have a text each in every step.
            expected = [True] * 4 + [False] if n_tasks == 1 else [False] * 5
            assert [text.is_followed for text in texts] == expected
