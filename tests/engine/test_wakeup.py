"""An engine that is roused before its tasks are there."""

import time

import pytest
from support.engine_harness import Harness

from llamad.base.clock import clock_us
from llamad.client.events import Done
from llamad.engine.testing.fake import Fake
from llamad.protocol.messages import ACTION_ERASE, RESULT_DONE


@pytest.mark.parametrize("nowait", [False, True])
def test_an_action_comes_before_the_tasks_that_come_after_it(nowait):
    with Harness(Fake(device_us=200), n_slots=2, has_device=True) as h:
        h.wait(h.submit(b"xyz", n_predict=2, id_slot=0))
        h.port.announce()
        erased = h.act(ACTION_ERASE, 0, nowait=nowait)
        task = h.submit(b"abc", n_predict=20, id_slot=0, wake=False)
        time.sleep(0.005)  # the engine has both before it is told that there are no more
        h.port.wake()
        h.wait(task)
        assert h.done(erased).result == RESULT_DONE
        assert len(h.core.slot_tokens(0)) > 20


def test_who_waits_for_others_is_not_being_read_yet():
    with Harness(Fake(device_us=300), n_slots=2, has_device=True) as h:
        h.port.announce()
        task = h.submit(b"abc", n_predict=1, wake=False)
        h.until(lambda: h.core.n_idle() == 1)
        assert not h.events[task]  # it has a slot, but the others are waited for
        t_woken = clock_us()
        h.port.wake()
        h.wait(task)
        assert h.admitted(task).t_us >= t_woken
        done = h.end(task)
        assert isinstance(done, Done)
        assert done.t_us - done.predict_us - done.prompt_us >= t_woken


def test_an_engine_that_is_told_to_stop_waits_for_no_tasks():
    with Harness(Fake(), n_slots=2, has_device=True) as h:
        h.port.announce()
        time.sleep(0.02)  # it sleeps by now
    # leaving has sent stop, and joined the thread
