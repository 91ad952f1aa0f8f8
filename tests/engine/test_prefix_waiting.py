"""A prefix that another slot is still reading is waited for, and then taken over: nothing is read twice."""

import pytest
from support.engine_harness import Harness

from llamad.base.clock import clock_us
from llamad.client.events import Admitted, Failed
from llamad.engine.testing.fake import Fake
from llamad.protocol.messages import FAILURE_ABORTED, FAILURE_DEADLINE

PROMPT = b"a prompt that several requests begin with, long enough to be worth waiting for it " * 2
N_PROMPT = 1 + len(PROMPT)


def n_read(h: Harness) -> int:
    """Prompt tokens that were decoded."""
    return sum(row.n_tokens for step in h.steps for row in step.slots if not row.is_decoding)


def tail(i: int) -> bytes:
    return b" and then its own part, number %03d" % i


@pytest.mark.parametrize("unified", [False, True])
@pytest.mark.parametrize("n_slots", [3, 64])
def test_requests_that_arrive_together_read_their_common_beginning_once(unified, n_slots):
    common = bytes(33 + i % 90 for i in range(1999))
    fake = Fake(n_ctx=4096, n_batch=512, unified=unified)
    n_cells = 64 * 2304 if unified else 0
    with Harness(fake, n_slots=n_slots, n_ctx=4096, n_batch=512, n_cells=n_cells) as h:
        fake.block(True)
        tasks = [h.submit(common + tail(i), n_predict=4) for i in range(64)]
        fake.block(False)
        h.wait(*tasks)
        assert h.n_cached(tasks[0]) == 0
        # The tails begin alike as well.
        n_alike = 2000 + len(tail(0)) - 3
        assert all(n_alike <= h.n_cached(task) <= n_alike + 2 for task in tasks[1:])
        assert n_read(h) == sum(2000 + len(tail(i)) - h.n_cached(task) for i, task in enumerate(tasks))
        assert n_read(h) <= 2000 + 64 * len(tail(0))


def started(fake: Fake, h: Harness, prompt: bytes = PROMPT + tail(0), **options) -> int:
    """A task that is reading, before its first decode."""
    fake.block(True)
    task = h.submit(prompt, n_predict=4, **options)
    h.wait_first(task, Admitted)
    return task


def admitted_us(h: Harness, task: int) -> int:
    return h.admitted(task).t_us


@pytest.mark.parametrize("unified", [False, True])
def test_a_held_task_goes_on_as_soon_as_the_common_part_is_read(unified):
    fake = Fake(unified=unified)
    with Harness(fake, n_slots=2, step_tokens_max=16, n_cells=1024 if unified else 0) as h:
        first = started(fake, h, PROMPT + b"!" * 200)
        second = h.submit(PROMPT + tail(1), n_predict=4)
        fake.block(False)
        h.wait(first, second)
        assert h.n_cached(second) == N_PROMPT
        assert admitted_us(h, second) < h.texts(first)[0].t_us


def test_a_held_task_lets_those_pass_that_share_nothing():
    fake = Fake(script=b"answer")
    with Harness(fake, n_slots=3, step_tokens_max=16) as h:
        first = started(fake, h)
        held = h.submit(PROMPT + tail(1))
        other = h.submit(b"other")
        fake.block(False)
        h.wait(first, held, other)
        assert admitted_us(h, first) < admitted_us(h, other) < admitted_us(h, held)
        assert h.n_cached(held) >= N_PROMPT


def test_who_waits_for_a_reader_that_is_aborted_reads_on_and_is_waited_for():
    fake = Fake(script=b"answer")
    with Harness(fake, n_slots=4, step_tokens_max=16) as h:
        first = started(fake, h)
        others = [h.submit(PROMPT + tail(i)) for i in (1, 2, 3)]
        h.port.abort(first)
        fake.block(False)
        h.wait(first, *others)
        assert isinstance(h.end(first), Failed)
        assert h.n_cached(others[0]) < N_PROMPT - 1
        assert all(h.n_cached(task) >= N_PROMPT for task in others[1:])
        assert all(h.text(task) == b"answer" for task in others)
        assert n_read(h) < 2 * N_PROMPT


def test_who_waits_for_a_reader_whose_decode_fails_reads_itself():
    fake = Fake(script=b"answer")
    with Harness(fake, n_slots=4) as h:
        first = started(fake, h)
        others = [h.submit(PROMPT + tail(i)) for i in (1, 2)]
        fake.fail_next(-3, n_times=2)
        fake.block(False)
        h.wait(first, *others)
        assert isinstance(h.end(first), Failed)
        assert h.n_cached(others[0]) == 0
        assert h.n_cached(others[1]) >= N_PROMPT


def test_a_held_tasks_deadline_and_abort_come_in_time():
    fake = Fake(script=b"answer", decode_us=5000)
    with Harness(fake, n_slots=4, step_tokens_max=4) as h:
        first = started(fake, h)
        late = h.submit(PROMPT + tail(1), deadline_us=clock_us() + 20_000)
        gone = h.submit(PROMPT + tail(2))
        h.port.abort(gone)
        fake.block(False)
        h.wait(late, gone)
        assert h.end(late).failure == FAILURE_DEADLINE
        assert h.end(gone).failure == FAILURE_ABORTED
        assert h.end(first) is None
        h.port.abort(first)
        h.wait(first)


def test_held_tasks_keep_the_order_of_their_priorities():
    fake = Fake(script=b"answer", decode_us=100)
    with Harness(fake, n_slots=2, step_tokens_max=16) as h:
        first = started(fake, h)
        low, high = (h.submit(PROMPT + tail(i), priority=i) for i in (1, 2))
        fake.block(False)
        h.wait(first, low, high)
        assert admitted_us(h, high) < admitted_us(h, low)
        assert n_read(h) <= N_PROMPT + 3 * len(tail(0))


@pytest.mark.parametrize(
    ("options", "change"),
    [
        ({}, {"cache_prompt": False}),
        ({}, {"number": 1}),
        ({}, {"prompt": PROMPT[:60] + b"?" * 100}),
        ({"can_share": False}, {}),
        ({"group_n": 4, "group_w": 32}, {}),
        ({"n_swa": 16, "n_ubatch": 8}, {"prompt": PROMPT[:100] + b"?" * 100}),
    ],
)
def test_nobody_waits_for_what_could_not_be_taken_over(options, change):
    fake = Fake(can_cut=options.get("can_share", True))
    with Harness(fake, n_slots=2, step_tokens_max=16, **options) as h:
        first = started(fake, h)
        second = h.submit(**({"prompt": PROMPT + tail(1), "n_predict": 4} | change))
        fake.block(False)
        h.wait(first, second)
        assert h.n_cached(second) == 0
        assert admitted_us(h, second) < h.texts(first)[0].t_us
