"""Work of several clients on few threads: in turns, with a thread left over, and nothing lost."""

import asyncio
import gc
import threading
import weakref
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamad.base.fair_pool import FairPool
from llamad.base.memory_budget import Budget


def test_clients_take_turns():
    async def run() -> list[str]:
        pool, order, gate = FairPool(1, "test"), [], threading.Event()
        first = asyncio.ensure_future(pool.run(1, gate.wait))
        await asyncio.sleep(0)
        many = [asyncio.ensure_future(pool.run(1, partial(order.append, f"many {i}"))) for i in range(4)]
        few = [asyncio.ensure_future(pool.run(2, partial(order.append, f"few {i}"))) for i in range(2)]
        await asyncio.sleep(0)
        assert pool.turns.n_waiting == 6
        gate.set()
        await asyncio.gather(first, *many, *few)
        assert pool.turns.is_empty
        pool.close()
        return order

    assert asyncio.run(run()) == ["many 0", "few 0", "many 1", "few 1", "many 2", "many 3"]


def test_one_client_leaves_a_thread_to_others():
    async def run() -> None:
        pool, gate = FairPool(2, "test"), threading.Event()
        slow = [asyncio.ensure_future(pool.run(1, gate.wait)) for _ in range(5)]
        await asyncio.sleep(0)
        assert await asyncio.wait_for(pool.run(2, lambda: "served"), 30) == "served"
        assert not any(one.done() for one in slow)
        gate.set()
        await asyncio.gather(*slow)
        pool.close()

    asyncio.run(run())


def test_errors_reach_their_caller_and_cancelled_work_does_not_begin():
    async def run() -> None:
        pool, gate, begun = FairPool(1, "test"), threading.Event(), []
        first = asyncio.ensure_future(pool.run(1, gate.wait))
        waiting = asyncio.ensure_future(pool.run(1, lambda: begun.append(1)))
        broken = asyncio.ensure_future(pool.run(2, lambda: 1 // 0))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(0)
        gate.set()
        await first
        with pytest.raises(ZeroDivisionError):
            await broken
        assert await pool.run(3, lambda: "after") == "after"
        assert not begun
        assert pool.turns.is_empty
        pool.close()

    asyncio.run(run())


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 3), st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40))
def test_everything_ends_and_nothing_is_left(n_threads, works):
    async def run() -> None:
        pool = FairPool(n_threads, "test")
        tasks = [
            asyncio.ensure_future(pool.run(client, partial(int, i))) for i, (client, _) in enumerate(works)
        ]
        await asyncio.sleep(0)
        for task, (_, is_cancelled) in zip(tasks, works, strict=True):
            if is_cancelled:
                task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for i, (one, (_, is_cancelled)) in enumerate(zip(results, works, strict=True)):
            assert one == i or (is_cancelled and isinstance(one, asyncio.CancelledError))
        assert await pool.run(9, lambda: "after") == "after"
        pool.close()

    asyncio.run(run())


def test_what_fails_after_its_caller_has_gone_is_no_news():
    async def run() -> int:
        loop, failures = asyncio.get_running_loop(), []
        loop.set_exception_handler(lambda _, context: failures.append(context))
        pool, gate = FairPool(1, "test"), threading.Event()
        gone = asyncio.ensure_future(pool.run(1, lambda: gate.wait() and 1 // 0))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        gate.set()
        assert await pool.run(2, lambda: "after") == "after"
        gc.collect()
        pool.close()
        return len(failures)

    assert asyncio.run(run()) == 0


def test_work_that_is_cancelled_or_fails_lets_go_of_what_it_refers_to():
    class Body:
        pass

    def fail(body: Body) -> None:
        raise ValueError

    async def run() -> None:
        pool, gate, budget = FairPool(1, "test"), threading.Event(), Budget(1000)
        claim = budget.claim("a")
        claim.add(100)
        begun = asyncio.ensure_future(pool.run(1, gate.wait, claim))
        bodies = [Body(), Body()]
        alive = [weakref.ref(body) for body in bodies]
        waiting = asyncio.ensure_future(pool.run(1, partial(fail, bodies.pop()), claim))
        await asyncio.sleep(0)
        claim.release()
        waiting.cancel()
        begun.cancel()
        await asyncio.wait([waiting, begun])
        assert alive[1]() is None  # though it is still in the queue
        assert budget.n_bytes == 100  # the thread cannot be stopped
        gate.set()
        while budget.n_bytes:
            await asyncio.sleep(0.01)
        try:
            await pool.run(1, partial(fail, bodies.pop()))
        except ValueError:
            pass
        while alive[0]() is not None:  # until the thread has let go of it, too
            await asyncio.sleep(0.01)
        pool.close()

    gc.disable()
    try:
        asyncio.run(asyncio.wait_for(run(), 10))
    finally:
        gc.enable()
