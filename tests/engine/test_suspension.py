"""Requests that outgrow a shared KV cache, over the fake model: the youngest waits and goes on, and none is cut.
Without a script the fake counts upwards from the last byte: a task's text shows whether it went on where it was."""

import time

import pytest
from support.engine_harness import Harness

from llamad.base.clock import clock_us
from llamad.client.events import Failed, PromptTokens
from llamad.engine.testing.fake import Fake
from llamad.grammar.grammar import Grammar, Pieces
from llamad.protocol.messages import (
    ACTION_ERASE,
    EVENT_DONE,
    FAILURE_ABORTED,
    FAILURE_DEADLINE,
    RESULT_BUSY,
    RESULT_DONE,
)

N_CELLS = 256
MANY = 1 << 20


def shared(fake=None, *, n_slots=4, cache_bytes=MANY, **options):
    fake = fake or Fake(n_ctx=N_CELLS, n_cells=N_CELLS, unified=True)
    return Harness(fake, n_slots=n_slots, n_ctx=N_CELLS, n_cells=N_CELLS, cache_bytes=cache_bytes, **options)


def prompt(i, n=70):
    return bytes([97 + i]) * n


def counted(i, n):
    """What the fake writes behind prompt(i)."""
    return bytes((98 + i + k) % 256 for k in range(n))


def hold(h, tasks):
    """Returns when a task is suspended; the fake is blocked then."""
    h.until(lambda: h.port.stats()["n_suspended"] > 0)
    h.catch()
    return [task for task in tasks if h.port.slots()[h.slot(task)].is_suspended]


@pytest.mark.parametrize("cache_bytes", [MANY, 0, 4096], ids=["saved", "recomputed", "some of both"])
@pytest.mark.parametrize("can_cut", [True, False], ids=["can be cut", "recurrent"])
def test_no_task_is_cut_and_all_write_what_they_would_alone(cache_bytes, can_cut):
    fake = Fake(n_ctx=N_CELLS, n_cells=N_CELLS, unified=True, can_cut=can_cut, decode_us=100)
    with shared(fake, cache_bytes=cache_bytes, can_share=can_cut) as h:
        tasks = [h.submit(prompt(i), n_predict=150) for i in range(6)]
        h.wait(*tasks)
        for i, task in enumerate(tasks):
            assert h.text(task) == counted(i, 150)
            assert (h.end(task).n_decoded, h.end(task).truncated) == (150, False)
        stats = h.stats()
        assert stats["n_suspensions"] > 0
        assert stats["n_suspended"] == 0
        assert (stats["n_recomputed"] > 0) is (cache_bytes < MANY)
        assert fake.held_max <= N_CELLS
        ends = [task for kind, task in h.order if kind == EVENT_DONE]
        assert ends[0] == tasks[0], "the oldest runs to its end"


def test_nothing_is_admitted_before_the_suspended_go_on():
    with shared(Fake(n_ctx=N_CELLS, n_cells=N_CELLS, unified=True, decode_us=1000)) as h:
        tasks = [h.submit(prompt(i), n_predict=150) for i in range(3)]
        assert hold(h, tasks) == [tasks[2]]
        late = h.submit(b"short", n_predict=1)
        h.fake.block(False)
        h.wait(*tasks, late)
        ends = [task for kind, task in h.order if kind == EVENT_DONE]
        assert ends.index(tasks[0]) < ends.index(late)
        assert h.text(tasks[2]) == counted(2, 150)


@pytest.mark.parametrize("cache_bytes", [MANY, 0], ids=["saved", "recomputed"])
def test_a_prompt_that_is_being_read_waits_as_well(cache_bytes):
    """It has room when it is admitted, but not while the answer before it grows. Its probabilities are sent once."""
    options = {"n_ctx": 4096, "n_cells": 4096, "step_tokens_max": 5, "cache_bytes": cache_bytes}
    with Harness(Fake(n_ctx=4096, unified=True, decode_us=1000), **options) as h:
        first = h.submit(prompt(0), n_predict=1000)
        second = h.submit(prompt(1, 3600), n_predict=10, n_probs=1, prompt_probs=True)
        assert hold(h, [first, second]) == [second]
        assert h.tokens(second) == []
        h.fake.block(False)
        h.wait(first, second)
        assert (h.text(first), h.text(second)) == (counted(0, 1000), counted(1, 10))
        shown = [token for part in h.told(second, PromptTokens) for token in part.tokens]
        assert shown == [101] * 3600


def test_a_suspended_task_is_aborted():
    with shared(Fake(n_ctx=N_CELLS, n_cells=N_CELLS, unified=True, decode_us=1000)) as h:
        tasks = [h.submit(prompt(i), n_predict=150) for i in range(3)]
        assert hold(h, tasks) == [tasks[2]]
        h.port.abort(tasks[2])
        h.fake.block(False)
        h.wait(*tasks)
        assert h.end(tasks[2]).failure == FAILURE_ABORTED
        assert [h.text(task) for task in tasks[:2]] == [counted(i, 150) for i in range(2)]
        assert h.stats()["n_suspended"] == 0


def test_a_suspended_task_runs_out_of_time():
    with shared(Fake(n_ctx=N_CELLS, n_cells=N_CELLS, unified=True, decode_us=1000)) as h:
        tasks = [h.submit(prompt(i), n_predict=150) for i in range(2)]
        tasks.append(h.submit(prompt(2), n_predict=150, deadline_us=clock_us() + 1_000_000))
        assert hold(h, tasks) == [tasks[2]]
        time.sleep(1)
        h.fake.block(False)
        h.wait(*tasks)
        assert h.end(tasks[2]).failure == FAILURE_DEADLINE
        assert [h.text(task) for task in tasks[:2]] == [counted(i, 150) for i in range(2)]


def test_actions_wait_for_a_suspended_task():
    with shared(Fake(n_ctx=N_CELLS, n_cells=N_CELLS, unified=True, decode_us=1000)) as h:
        tasks = [h.submit(prompt(i), n_predict=150) for i in range(3)]
        (youngest,) = hold(h, tasks)
        at_once = h.act(ACTION_ERASE, h.slot(youngest), nowait=True)
        later = h.act(ACTION_ERASE, h.slot(youngest))
        h.fake.block(False)
        assert h.done(at_once).result == RESULT_BUSY
        assert h.done(later).result == RESULT_DONE
        assert h.end(youngest) is not None
        h.wait(*tasks)
        assert h.text(youngest) == counted(2, 150)


def test_a_task_whose_client_does_not_read_is_suspended_first_and_nobody_waits_for_it():
    with shared(Fake(n_ctx=N_CELLS, n_cells=N_CELLS, unified=True, decode_us=1000)) as h:
        tasks = [h.submit(prompt(i), n_predict=150) for i in range(3)]
        h.wait_first(tasks[0])
        h.port.pause(tasks[0])
        assert hold(h, tasks) == [tasks[0]]
        late = h.submit(prompt(3), n_predict=20)
        h.fake.block(False)
        h.wait(tasks[1], tasks[2], late)
        assert h.end(tasks[0]) is None
        h.port.resume(tasks[0])
        h.wait(tasks[0])
        assert [h.text(task) for task in tasks] == [counted(i, 150) for i in range(3)]


def test_a_task_that_is_suspended_takes_the_place_of_one_whose_client_stops_reading():
    with shared(Fake(n_ctx=N_CELLS, n_cells=N_CELLS, unified=True, decode_us=1000), n_slots=2) as h:
        tasks = [h.submit(prompt(i), n_predict=150) for i in range(2)]
        assert hold(h, tasks) == [tasks[1]]
        h.port.pause(tasks[0])
        h.fake.block(False)
        h.wait(tasks[1])
        assert h.end(tasks[0]) is None
        h.port.resume(tasks[0])
        h.wait(tasks[0])
        assert [h.text(task) for task in tasks] == [counted(i, 150) for i in range(2)]


def test_a_failed_decode_changes_no_text_of_those_that_run_or_wait():
    with shared(Fake(n_ctx=N_CELLS, n_cells=N_CELLS, unified=True, decode_us=1000)) as h:
        tasks = [h.submit(prompt(i), n_predict=150) for i in range(3)]
        assert hold(h, tasks) == [tasks[2]]
        h.fake.fail_next(-3)
        h.fake.block(False)
        h.wait(*tasks)
        assert [h.text(task) for task in tasks] == [counted(i, 150) for i in range(3)]


def test_a_full_context_is_shifted_before_and_after():
    with shared(Fake(n_ctx=N_CELLS, n_cells=N_CELLS, unified=True, decode_us=50)) as h:
        tasks = [h.submit(prompt(i), n_predict=400) for i in range(3)]
        h.wait(*tasks)
        assert [h.text(task) for task in tasks] == [counted(i, 400) for i in range(3)]
        assert h.stats()["n_suspensions"] > 0


def test_the_engine_stops_with_tasks_suspended():
    with shared(Fake(n_ctx=N_CELLS, n_cells=N_CELLS, unified=True, decode_us=1000)) as h:
        tasks = [h.submit(prompt(i), n_predict=150) for i in range(3)]
        hold(h, tasks)
    assert {h.end(task).failure for task in tasks} == {FAILURE_ABORTED}


def test_slots_with_a_stream_of_their_own_are_never_suspended():
    with Harness(Fake(n_ctx=N_CELLS), n_ctx=N_CELLS, cache_bytes=MANY) as h:
        tasks = [h.submit(prompt(i), n_predict=150) for i in range(4)]
        h.wait(*tasks)
        assert h.stats()["n_suspensions"] == 0


def test_a_task_that_is_suspended_with_a_full_context_ends_there():
    """Its token was being sampled when its context was full and had to be made anew. It used to be computed again with
    one token more than the context has, and that token was written behind the slot's memory."""
    n_ctx = 64
    fake = Fake(script=b"a" * 200, n_ctx=n_ctx, can_shift=False)
    with Harness(fake, n_slots=2, n_ctx=n_ctx, grammar_work=0) as h:
        grammar = Grammar('root ::= "a"*', Pieces(h.vocab))
        for n_before in range(n_ctx - 8, n_ctx + 2):
            task = h.submit(b"p", grammar=grammar.id, n_predict=90)
            h.until(lambda task=task, n=n_before: len(h.tokens(task)) >= n or h.end(task))
            fake.fail_next(-3)
            h.wait(task)
            fake.fail_next(0)
            assert not isinstance(h.end(task), Failed)
            assert len(h.tokens(task)) <= n_ctx
