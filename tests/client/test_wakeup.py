"""When an idle engine is woken: when no further task is on its way, or there is enough for a step."""

import asyncio
import time

from support.engine_harness import GREEDY, Harness
from support.local_engine import local_engine
from support.timing_retries import learned

from llamad.client.task import RequestContext, Task
from llamad.client.wakeup import Gathering
from llamad.engine.testing.fake import Fake
from llamad.options.table import Options


class Bell:
    def __init__(self) -> None:
        self.n = self.n_roused = 0

    def rouse(self) -> None:
        self.n_roused += 1

    def ring(self) -> None:
        self.n += 1


async def turns(n: int) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


def submit(gathering: Gathering, loop: asyncio.AbstractEventLoop, n_tokens: int) -> None:
    gathering.open(loop)
    gathering.add(n_tokens)


def gathered(test) -> None:
    async def run() -> None:
        bell = Bell()
        await test(
            asyncio.get_running_loop(),
            bell,
            Gathering(bell.rouse, bell.ring, n_tokens_max=100, n_tasks_max=12),
        )

    asyncio.run(run())


def test_a_lone_task_waits_for_a_few_turns_of_the_loop():
    async def test(loop, bell, gathering):
        submit(gathering, loop, 10)
        assert bell.n == 0
        await turns(8)
        assert bell.n == 1
        assert not gathering.is_open

    gathered(test)


def test_tasks_that_follow_each_other_are_one_call():
    async def test(loop, bell, gathering):
        for _ in range(9):
            submit(gathering, loop, 10)
            await turns(2)
            assert bell.n == 0
            assert bell.n_roused == 1
        await turns(8)
        assert bell.n == 1
        submit(gathering, loop, 10)
        assert bell.n_roused == 2

    gathered(test)


def test_enough_for_a_step_waits_for_nobody():
    async def test(loop, bell, gathering):
        submit(gathering, loop, 60)
        submit(gathering, loop, 60)
        assert bell.n == 1
        assert not gathering.is_open
        await turns(8)
        assert bell.n == 1
        submit(gathering, loop, 1)  # and what was called for no longer counts
        assert bell.n == 1
        await turns(8)
        assert bell.n == 2

    gathered(test)


def test_who_comes_right_after_a_call_is_not_forgotten():
    async def test(loop, bell, gathering):
        submit(gathering, loop, 60)
        await turns(1)
        submit(gathering, loop, 60)
        submit(gathering, loop, 10)
        assert bell.n == 1
        assert gathering.is_open
        await turns(8)
        assert bell.n == 2

    gathered(test)


def test_as_many_as_there_are_slots_wait_for_nobody():
    async def test(loop, bell, gathering):
        for _ in range(12):
            assert bell.n == 0
            submit(gathering, loop, 1)
        assert bell.n == 1

    gathered(test)


def test_the_engine_is_woken_also_for_a_task_that_did_not_come():
    """It could not be sent, but those before it have been."""

    async def test(loop, bell, gathering):
        submit(gathering, loop, 1)
        gathering.open(loop)
        await turns(8)
        assert bell.n == 1

    gathered(test)


class Ended:
    """A sink that knows when it is all over."""

    def __init__(self) -> None:
        self.future = asyncio.get_running_loop().create_future()

    def on_admitted(self, *_):
        pass

    def on_text(self, *_):
        pass

    def on_done(self, done):
        self.future.set_result(done)

    def on_failed(self, failure, code):
        self.future.set_exception(AssertionError(failure))


@learned  # an engine whose thread begins late finds the first task before it goes to sleep
def test_an_idle_engine_reads_in_one_step_what_came_together():
    async def run() -> int:
        fake = Fake()
        h = Harness(fake, n_slots=8, has_device=True)
        local = local_engine(h.core, n_slots=8, queue_max=8)
        local.start()
        engine = local.engine
        sinks = []
        n_admitted = 0
        for i in range(6):
            sinks.append(Ended())
            prompt = h.vocab.tokenize(b"%d" % i, True, True)
            engine.submit(Task(RequestContext("x"), prompt, GREEDY, Options(n_predict=1)), sinks[-1])
            time.sleep(0.005)  # an engine that was woken would begin
            n_admitted = max(n_admitted, 8 - h.core.n_idle() if fake.n_decodes == 0 else 0)
            await turns(1)
        await asyncio.gather(*[sink.future for sink in sinks])
        await local.stop()
        assert n_admitted > 0  # while the next was on its way
        return fake.n_decodes

    assert asyncio.run(run()) == 1
