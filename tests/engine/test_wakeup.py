"""An engine that is roused before its tasks are there, and when it wakes the front for its tokens."""

import select
import time

import pytest
from support.engine_harness import Harness
from support.timing_retries import learned

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


def is_woken_before_the_next_decode(fake, **options) -> bool:
    """Return whether the front is woken for a token before the next decode; it must be woken during it otherwise."""

    def is_woken(seconds: float) -> bool:
        poll = select.poll()  # descriptors may be too large for select()
        poll.register(h.port.event_fd, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    with Harness(fake, n_slots=1, **options) as h:
        task = h.submit(b"a", n_predict=40)
        h.until(lambda: len(h.events[task]) > 10)  # it has learned how long steps take
        h.collect()
        n_before = len(h.events[task])
        fake.block(True)
        while not fake.is_waiting:
            time.sleep(0.0005)
        is_early = is_woken(0)
        h.collect()
        assert len(h.events[task]) == n_before + 1
        fake.block(False)
        assert is_early or is_woken(5)
        h.wait(task)
        return is_early


@learned
def test_a_gpu_gets_its_next_step_before_the_front_is_woken():
    assert not is_woken_before_the_next_decode(Fake(device_us=10000), has_device=True)


@learned
def test_a_token_does_not_wait_for_a_step_of_the_host():
    assert is_woken_before_the_next_decode(Fake(decode_us=10000))


@learned
def test_a_token_does_not_wait_for_a_launch_that_takes_a_step():
    assert is_woken_before_the_next_decode(Fake(decode_us=10000), has_device=True)
