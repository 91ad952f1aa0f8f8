"""What may happen to requests whose engine has ended: they wait, are dropped, expire or fail, and never hang."""

import asyncio
import time

import pytest
from support.mortal_engine import Collected, MortalEngine
from support.mortal_tasks import NO_END, crash_test, task, until

from llamad.base.clock import clock_us
from llamad.client import resumption
from llamad.engine.testing.fake import Fake
from llamad.protocol.messages import FAILURE_ABORTED, FAILURE_DEADLINE, FAILURE_ENGINE


def test_a_request_that_ran_in_two_crashes_fails():
    async def work(engine):
        first = engine.submit(task(engine, n_predict=5000, temperature=0.0, n_keep=0))
        await until(lambda: first.tokens)
        await engine.crash()
        second = engine.submit(task(engine, n_predict=20))
        n = len(first.tokens)
        await until(lambda: len(first.tokens) > n)
        await until(lambda: second.tokens or second.done)
        await engine.crash()
        await until(lambda: second.ended.is_set())
        assert first.failed == (FAILURE_ENGINE, 0)
        assert second.done.n_decoded == 20

    crash_test(work)


def test_a_request_that_only_waited_does_not_count():
    async def work(engine):
        running = engine.submit(task(engine, n_predict=5000))
        waiting = engine.submit(task(engine, n_predict=10))
        for _ in range(3):
            await until(lambda: engine.client.n_running == 1 or running.failed)
            if running.failed:
                break
            await engine.crash()
        await until(lambda: waiting.ended.is_set())
        assert running.failed == (FAILURE_ENGINE, 0)
        assert waiting.done.n_decoded == 10

    crash_test(work, n_slots=1)


def test_requests_that_had_a_slot_do_not_wait_for_one_in_the_next_engine():
    """They counted as waiting since they were submitted, so that streams without readers ended to make room. The time
    without an engine counted, too."""

    async def work(engine):
        running = engine.submit(task(engine, n_predict=5000))
        waiting = engine.submit(task(engine, n_predict=10))
        await until(lambda: running.tokens)
        t_before = time.monotonic()
        assert engine.client.n_queued(t_before) == 1
        engine.kill()
        engine.start()
        assert engine.client.n_waiting == 2
        assert engine.client.n_queued(t_before) == 0
        assert engine.client.n_queued(time.monotonic()) == 1
        engine.client.abort(running.task_id)
        await until(waiting.ended.is_set)

    crash_test(work, n_slots=1)


def test_a_request_that_ends_engines_while_they_admit_it_fails():
    """The front never hears that it has a slot, but sees which task the engine was about to admit."""

    def stuck():
        fake = Fake(chaos=7, decode_us=100)
        fake.block_removals(True)  # a slot that holds a prompt cannot be given to another one
        return fake

    async def work():
        engine = MortalEngine(stuck, n_slots=1)
        earlier = engine.submit(task(engine, b"one", n_predict=1))
        await until(earlier.ended.is_set)
        guilty = engine.submit(task(engine, b"two", n_predict=1))
        await until(lambda: engine.fake.is_waiting)
        waiting = engine.submit(task(engine, b"three", n_predict=1))
        engine.kill()
        assert guilty.failed is None
        first, earlier = task(engine, b"four", n_predict=1, context={"priority": 1}), Collected()
        engine.client.submit(first, earlier, goes_on=True)
        engine.start()
        await until(earlier.ended.is_set)
        await until(lambda: engine.fake.is_waiting)
        engine.kill()
        assert guilty.failed == (FAILURE_ENGINE, 0)
        assert waiting.failed is None
        engine.start()
        await until(waiting.ended.is_set)
        assert waiting.done.n_decoded == 1
        await engine.close()

    asyncio.run(work())


def test_without_the_flag_they_fail():
    async def work(engine):
        sink = engine.submit(task(engine, n_predict=5000))
        await until(lambda: sink.tokens)
        engine.kill()
        assert sink.failed == (FAILURE_ENGINE, 0)
        engine.start()

    crash_test(work, resume_max=0)


def test_clients_that_leave_between_engines_are_dropped_at_once():
    async def work(engine):
        sink = engine.submit(task(engine, n_predict=5000))
        await until(lambda: sink.tokens)
        engine.kill()
        engine.client.abort(sink.task_id)
        await until(lambda: sink.failed)
        assert sink.failed == (FAILURE_ABORTED, 0)
        assert engine.client.is_idle
        engine.start()

    crash_test(work)


@pytest.mark.parametrize("is_prepared", [False, True])
def test_clients_that_leave_as_the_next_engine_begins_leave_no_task_there(is_prepared, monkeypatch):
    """An abort between two engines takes effect in the next iteration of the event loop. An engine that got the task
    before that ran it to its end, and nobody told it to stop."""

    async def work(engine):
        prepared = asyncio.get_running_loop().create_future()

        async def prepare(*_):
            await prepared

        monkeypatch.setattr(resumption, "renew", prepare)
        grammar = await engine.asking.compile('root ::= "a"*', 10**6) if is_prepared else None
        sink = engine.submit(task(engine, grammar=grammar, n_predict=400, bias=NO_END))
        await until(lambda: sink.tokens)
        engine.kill()
        if is_prepared:
            engine.start()
            await asyncio.sleep(0.01)
            prepared.set_result(None)
            engine.client.abort(sink.task_id)
        else:
            engine.client.abort(sink.task_id)
            engine.start()
        await until(lambda: sink.failed)
        assert sink.failed == (FAILURE_ABORTED, 0)
        await asyncio.sleep(0.1)
        assert engine.client.n_idle() == engine.client.n_slots

    crash_test(work)


def test_deadlines_hold_between_engines():
    async def work(engine):
        context = {"deadline_us": clock_us() + 300_000}
        sink = engine.submit(task(engine, n_predict=5000, context=context))
        await until(lambda: sink.tokens)
        engine.kill()
        await until(lambda: sink.failed)
        assert sink.failed[0] == FAILURE_DEADLINE
        engine.start()

    crash_test(work)


def test_so_does_the_deadline_of_a_request_that_continues_with_another_task():
    """Only those that an engine had when it ended had a timer."""

    async def work(engine):
        engine.kill()
        sink = Collected()
        late = task(engine, n_predict=5000, context={"deadline_us": clock_us() + 50_000})
        engine.client.submit(late, sink, goes_on=True)
        await asyncio.wait_for(sink.ended.wait(), 10)
        assert sink.failed[0] == FAILURE_DEADLINE
        engine.start()

    crash_test(work)


def test_if_no_engine_comes_they_fail():
    async def work(engine):
        sink = engine.submit(task(engine, n_predict=5000))
        await until(lambda: sink.tokens)
        engine.kill()
        assert sink.failed is None
        engine.client.fail_orphans()
        assert sink.failed == (FAILURE_ENGINE, 0)
        engine.start()

    crash_test(work)


def test_a_drain_does_not_end_what_an_engine_prepares():
    """A daemon that drained failed running requests whose grammars were being compiled in the next engine."""

    async def work(engine):
        grammar = await engine.asking.compile('root ::= "a"*', 10**6)
        sink = engine.submit(task(engine, grammar=grammar, n_predict=100, bias=NO_END))
        await until(lambda: sink.tokens)
        engine.kill()
        engine.start()
        assert engine.client.n_waiting == 0
        engine.client.fail_orphans(FAILURE_ABORTED)
        await until(sink.ended.is_set)
        assert sink.done.n_decoded == 100
        assert engine.client.is_idle

    crash_test(work)


def test_a_request_continues_with_another_task_whatever_happens_to_engines():
    """A request whose reasoning has used up its budget does so. Then there may be no engine, or one without its
    grammar."""

    async def work(engine):
        grammar = await engine.asking.compile('root ::= "abc"*', 10**6)
        engine.kill()
        sinks = [Collected(), Collected()]
        engine.client.submit(task(engine, grammar=grammar, n_predict=30, bias=NO_END), sinks[0], goes_on=True)
        engine.start()
        engine.client.submit(task(engine, grammar=grammar, n_predict=30, bias=NO_END), sinks[1], goes_on=True)
        await until(lambda: all(sink.ended.is_set() for sink in sinks))
        assert [sink.data for sink in sinks] == [b"abc" * 10] * 2

    crash_test(work)


def test_requests_with_one_grammar_have_one_in_the_next_engine_too():
    """Each of them had its own compiled there. It is dropped after the last of them."""

    async def work(engine):
        grammars = [await engine.asking.compile(text, 10**6) for text in ('root ::= "a"*', 'root ::= "b"*')]
        sinks = [
            engine.submit(task(engine, b"%d" % i, grammar=grammars[i % 2], n_predict=200, bias=NO_END))
            for i in range(4)
        ]
        await until(lambda: all(sink.tokens for sink in sinks))
        engine.kill()
        engine.start()
        compiled, dropped = [], []
        compile_one = engine.asking.compile

        async def compiling(text, time_max_us):
            compiled.append(text)
            return await compile_one(text, time_max_us)

        engine.asking.compile, engine.asking.drop_grammar = compiling, dropped.append
        await until(lambda: any(len(sink.tokens) > 20 for sink in sinks))
        late = task(engine, b"late", grammar=grammars[0], n_predict=200, bias=NO_END)
        sinks.append(Collected())
        engine.client.submit(late, sinks[-1], goes_on=True)  # its grammar is there already
        await until(lambda: all(sink.ended.is_set() for sink in sinks))
        assert [sink.data for sink in sinks] == [b"a" * 200, b"b" * 200] * 2 + [b"a" * 200]
        assert sorted(compiled) == ['root ::= "a"*', 'root ::= "b"*']
        del late
        await until(lambda: len(dropped) == 2)

    crash_test(work)


def test_a_grammar_that_an_engine_cannot_compile_again_costs_its_request():
    async def work(engine):
        grammar = await engine.asking.compile('root ::= "a"*', 10**6)
        sink = engine.submit(task(engine, grammar=grammar, n_predict=400, bias=NO_END))
        await until(lambda: sink.tokens)
        grammar.text = "root ::= none"
        await engine.crash()
        await until(lambda: sink.failed)
        assert sink.failed == (FAILURE_ENGINE, 0)

    crash_test(work)


def test_an_engine_that_ends_while_it_prepares_a_request_counts():
    """A grammar that kills engines is not compiled for ever."""

    async def work(engine):
        grammar = await engine.asking.compile('root ::= "a"*', 10**6)
        sink = engine.submit(task(engine, grammar=grammar, n_predict=400, bias=NO_END))
        await until(lambda: sink.tokens)
        engine.kill()
        engine.start()
        engine.kill()  # before the event loop has had a turn
        await until(lambda: sink.failed)
        assert sink.failed == (FAILURE_ENGINE, 0)
        engine.start()

    crash_test(work)


def test_a_slow_reader_stays_paused():
    async def work(engine):
        sink = engine.submit(task(engine, n_predict=5000))
        await until(lambda: sink.tokens)
        engine.client.pause(sink.task_id)
        await engine.crash()
        await asyncio.sleep(0.1)
        n = len(sink.tokens)
        await asyncio.sleep(0.1)
        assert len(sink.tokens) == n
        engine.client.resume(sink.task_id)
        await until(lambda: len(sink.tokens) > n)
        engine.client.abort(sink.task_id)
        await until(lambda: sink.failed)

    crash_test(work)


def test_an_engine_that_says_that_its_context_is_lost_is_left_like_any_other():
    async def work(engine):
        sink = engine.submit(task(engine, n_predict=100))
        await until(lambda: sink.tokens)
        engine.fake.fail_next(-3, 100)
        await until(lambda: not engine.thread.is_alive())
        engine.kill()
        engine.start()
        await until(lambda: sink.ended.is_set())
        assert sink.done.n_decoded == 100

    crash_test(work)
