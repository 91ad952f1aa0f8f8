"""A decode that fails costs as few requests as possible."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engine_harness import Harness

from llamad.client.events import Admitted, Done, Failed
from llamad.engine.testing.fake import Fake
from llamad.protocol.messages import EVENT_DONE, FAILURE_DECODE, FAILURE_LOST, FAILURE_ROOM

NO_ROOM, INVALID, COMPUTE_FAILED = 1, -1, -3


def counted(first: int, n: int) -> bytes:
    """What the fake writes after a prompt that ends with this byte."""
    return bytes((first + 1 + i) % 256 for i in range(n))


def started(h: Harness, *texts: bytes, n_predict: int = 40) -> list[int]:
    tasks = [h.submit(text, n_predict=n_predict) for text in texts]
    for task in tasks:
        h.wait_first(task)
    return tasks


# --- a new context ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [2, -2, COMPUTE_FAILED, -1000])
@pytest.mark.parametrize("options", [{}, {"n_cells": 512}, {"has_device": True}])
def test_after_a_new_context_all_go_on_with_the_same_text(code, options):
    fake = Fake(decode_us=500, unified="n_cells" in options)
    with Harness(fake, n_slots=3, **options) as h:
        tasks = started(h, b"a", b"b", b"c")
        fake.fail_next(code)
        h.wait(*tasks)
        assert [h.text(task) for task in tasks] == [counted(97 + i, 40) for i in range(3)]
        assert fake.n_rebuilds == 1
        assert h.stats()["n_decode_failures"] == 1


def test_a_prompt_that_is_being_read_is_read_again():
    fake = Fake()
    with Harness(fake, n_slots=2, step_tokens_max=16) as h:
        fake.block(True)
        task = h.submit(b"p" * 60, n_predict=5)
        h.wait_first(task, Admitted)
        fake.fail_next(COMPUTE_FAILED)
        fake.block(False)
        h.wait(task)
        assert h.text(task) == counted(ord("p"), 5)
        assert fake.n_rebuilds == 1


def test_a_task_that_fails_twice_and_alone_is_given_up():
    fake = Fake()
    with Harness(fake, n_slots=2) as h:
        fake.fail_next(COMPUTE_FAILED, n_times=2)
        task = h.submit(b"one", n_predict=5)
        h.wait(task)
        assert h.end(task) == Failed(FAILURE_DECODE, COMPUTE_FAILED)
        after = h.submit(b"x", n_predict=5)
        h.wait(after)
        assert h.text(after) == counted(ord("x"), 5)


def test_only_the_task_at_fault_is_given_up():
    """Every decode with the task in slot 1 fails."""
    fake = Fake(decode_us=500)
    with Harness(fake, n_slots=3) as h:
        tasks = started(h, b"a", b"b", b"c")
        fake.fail_sequence(h.slot(tasks[1]), COMPUTE_FAILED)
        h.wait(*tasks)
        assert h.end(tasks[1]) == Failed(FAILURE_DECODE, COMPUTE_FAILED)
        assert h.text(tasks[0]) == counted(97, 40)
        assert h.text(tasks[2]) == counted(99, 40)


def test_a_batch_that_is_refused_costs_the_task_at_fault_alone():
    fake = Fake(decode_us=500)
    with Harness(fake, n_slots=3) as h:
        tasks = started(h, b"a", b"b", b"c")
        fake.fail_sequence(h.slot(tasks[2]), INVALID)
        h.wait(*tasks)
        assert h.end(tasks[2]) == Failed(FAILURE_DECODE, INVALID)
        assert [h.text(task) for task in tasks[:2]] == [counted(97, 40), counted(98, 40)]
        assert fake.n_rebuilds == 0  # nothing had changed


# --- what a task needs is not there ------------------------------------------------------------------------------


def test_an_adapter_that_the_engine_does_not_have_costs_its_own_tasks_alone():
    fake = Fake(decode_us=500)
    with Harness(fake, n_slots=3) as h:
        plain = started(h, b"a", b"b")
        fake.lose_adapter(7)
        lost = h.submit(b"c", number=1, uses=((7, 1.0),), n_predict=5)
        h.wait(lost, *plain)
        assert h.end(lost).failure == FAILURE_LOST
        assert [h.text(task) for task in plain] == [counted(97 + i, 40) for i in range(2)]
        assert fake.n_rebuilds == 0


# --- no room ----------------------------------------------------------------------------------------------------


def test_without_room_idle_prefixes_go_first():
    fake = Fake(n_ctx=256, unified=True)
    with Harness(fake, n_slots=2, n_ctx=256, n_cells=512, cache_bytes=1 << 20) as h:
        idle = h.submit(b"i" * 100, n_predict=1)
        h.wait(idle)
        fake.fail_next(NO_ROOM)
        task = h.submit(b"a", n_predict=5, id_slot=1 - h.slot(idle))
        h.wait(task)
        assert h.text(task) == counted(97, 5)
        assert h.core.slot_tokens(h.slot(idle)) == []
        stats = h.stats()
        assert (stats["n_refused"], stats["cache_saves"], stats["n_decode_failures"]) == (1, 1, 0)
        assert fake.n_rebuilds == 0


@pytest.mark.parametrize("unified", [False, True])
def test_without_room_the_youngest_waits_until_another_has_ended(unified):
    fake = Fake(decode_us=500, unified=unified)
    with Harness(fake, n_slots=3, n_cells=1024 if unified else 0, cache_bytes=1 << 20) as h:
        tasks = started(h, b"a", b"b", b"c")
        fake.fail_next(NO_ROOM)
        h.wait(*tasks)
        assert [h.text(task) for task in tasks] == [counted(97 + i, 40) for i in range(3)]
        stats = h.stats()
        assert (stats["n_refused"], stats["n_suspensions"]) == (1, 1)
        ends = [kind_and_task[1] for kind_and_task in h.order if kind_and_task[0] == EVENT_DONE]
        assert ends[-1] == tasks[2]


def test_without_room_a_task_alone_is_read_in_smaller_pieces():
    fake = Fake(n_batch=64)
    with Harness(fake, n_slots=2) as h:
        fake.refuse_more_than(10)
        task = h.submit(b"p" * 100, n_predict=5)
        h.wait(task)
        assert h.text(task) == counted(ord("p"), 5)
        assert max(step_tokens(h)) <= 10


def step_tokens(h: Harness) -> list[int]:
    return [sum(row.n_tokens for row in step.slots) for step in h.steps]


def test_a_task_that_does_not_fit_alone_fails_and_says_how_long_it_is():
    fake = Fake()
    with Harness(fake, n_slots=2) as h:
        fake.refuse_more_than(0)
        task = h.submit(b"p" * 100, n_predict=5)
        h.wait(task)
        assert h.end(task) == Failed(FAILURE_ROOM, 101)
        fake.refuse_more_than(-1)
        after = h.submit(b"x", n_predict=5)
        h.wait(after)
        assert h.text(after) == counted(ord("x"), 5)


def test_prompts_that_were_decoded_before_the_part_that_found_no_room_are_not_lost():
    """With a GPU prompts are a decode of their own. Only the second part of the step fails, so the first one's tokens
    are in the cache and must not be decoded again (the fake counts that as a bad call)."""
    fake = Fake(decode_us=300, n_batch=64)
    with Harness(fake, n_slots=3, has_device=True) as h:
        (first,) = started(h, b"a", n_predict=60)
        fake.refuse_decoding_beside_prompts(3)
        second = h.submit(b"p" * 50, n_predict=5)
        h.wait(first, second)
        assert h.text(first) == counted(97, 60)
        assert h.text(second) == counted(ord("p"), 5)
        assert h.stats()["n_refused"] >= 1


@settings(max_examples=60, deadline=None)
@given(
    faults=st.lists(
        st.tuples(st.sampled_from([1, 1, 2, -1, -2, -3, -1000]), st.integers(0, 20)), min_size=1, max_size=6
    ),
    prompts=st.lists(st.integers(1, 120), min_size=1, max_size=6),
    unified=st.booleans(),
    has_device=st.booleans(),
)
def test_whatever_fails_every_task_ends_and_those_that_are_done_have_their_text(
    faults, prompts, unified, has_device
):
    fake = Fake(n_ctx=256, n_batch=32, unified=unified)
    n_cells = 512 if unified else 0
    with Harness(
        fake, n_slots=3, n_ctx=256, n_batch=32, n_cells=n_cells, cache_bytes=1 << 20, has_device=has_device
    ) as h:
        tasks = [h.submit(bytes([65 + i]) * n, n_predict=20) for i, n in enumerate(prompts)]
        for code, n_steps in faults:
            n_decodes = fake.n_decodes + n_steps
            h.until(lambda n=n_decodes: fake.n_decodes >= n or all(h.end(task) for task in tasks))
            fake.fail_next(code)
        h.wait(*tasks)
        for i, task in enumerate(tasks):
            if isinstance(h.end(task), Done):
                assert h.text(task) == counted(65 + i, 20)
        assert sum(isinstance(h.end(task), Failed) for task in tasks) <= len(faults)
        fake.fail_next(0)
