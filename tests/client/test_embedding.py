"""The queue of texts over a computer of its own making: how they are packed, whose turn it is, how requests end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from support.local_engine import LocalAsking

from llamad.client.embedding import Embedder, TextMedia
from llamad.client.media_embeddings import Lending
from llamad.protocol.errors import ComputeFailed, EngineEnded, Stopped
from llamad.protocol.model_info import Embeddings, VectorInfo


def text(n_tokens: int, token: int = 7) -> bytes:
    return np.full(n_tokens, token, np.int32).tobytes()


class Script:
    """A computer whose rows tell the text's length; it can be held, and fail."""

    def __init__(self, n_pack: int = 10, n_seq_max: int = 4) -> None:
        self.n_pack, self.n_seq_max = n_pack, n_seq_max
        self.info = VectorInfo("mean", 1, (), False, 100, False)
        self.batches: list[list[int]] = []
        self.adapters: list[list[tuple[int, float]]] = []
        self.free = threading.Event()
        self.free.set()
        self.fails_with: int | None = None

    def use(self, adapters: list[tuple[int, float]]) -> int:
        self.adapters.append(adapters)
        return 0

    def compute(self, memory: memoryview, lengths: list[int]) -> int:
        self.batches.append(lengths)
        assert self.free.wait(30)
        memory[4 * sum(lengths) :] = np.array(lengths, np.float32).tobytes()
        return self.fails_with or 0


def embedder_of(script: Script, jobs_max: int) -> Embedder:
    embedder = Embedder(script.info, jobs_max=jobs_max, n_pack=script.n_pack, n_texts_max=script.n_seq_max)
    embedder.connect(LocalAsking(computer=script))
    return embedder


def run(script: Script, work: Callable[[Embedder], Awaitable[Any]], jobs_max: int = 100) -> Any:
    async def main() -> Any:
        embedder = embedder_of(script, jobs_max)
        try:
            return await work(embedder)
        finally:
            script.free.set()
            embedder.close()

    return asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


def lengths(rows: list[Embeddings]) -> list[float]:
    return [float(one[0, 0]) for one in rows]


def test_waiting_texts_are_packed_in_order_up_to_tokens_and_sequences() -> None:
    script = Script(n_pack=10, n_seq_max=4)

    async def work(embedder: Embedder) -> None:
        script.free.clear()
        first = embedder.submit([text(1)])
        await until(lambda: len(script.batches) == 1)
        a = embedder.submit([text(4), text(5), text(2)])
        b = embedder.submit([text(n) for n in (1, 2, 1, 1, 1)])
        script.free.set()
        assert lengths(await first.future) == [1]
        assert lengths(await a.future) == [4, 5, 2]
        assert lengths(await b.future) == [1, 2, 1, 1, 1]

    run(script, work)
    assert script.batches == [[1], [4, 5], [2, 1, 2, 1], [1, 1]]


def test_clients_take_turns_and_leave_each_other_room() -> None:
    script = Script(n_pack=4)

    async def work(embedder: Embedder) -> None:
        script.free.clear()
        first = embedder.submit([text(1)], client=1)
        await until(lambda: len(script.batches) == 1)
        many = [embedder.submit([text(3)] * 4, client=1), embedder.submit([text(3)], client=1)]
        assert not embedder.has_share(1)
        assert embedder.has_share(2)
        one = embedder.submit([text(4)] * 2, client=2)
        script.free.set()
        await asyncio.gather(first.future, one.future, *(job.future for job in many))

    run(script, work, jobs_max=4)
    assert script.batches == [[1], [4], [3], [4], [3], [3], [3], [3]]


def test_a_text_longer_than_a_pack_goes_alone() -> None:
    script = Script(n_pack=10)

    async def work(embedder: Embedder) -> None:
        assert lengths(await embedder.submit([text(3), text(50), text(3)]).future) == [3, 50, 3]

    run(script, work)
    assert script.batches == [[3], [50], [3]]


def test_a_text_with_images_goes_alone_and_only_to_the_engine_that_has_them() -> None:
    script = Script(n_pack=10)

    async def work(embedder: Embedder) -> None:
        asking = LocalAsking(computer=script)
        media = {1: TextMedia([], await Lending(asking).lend(b"", []))}
        with pytest.raises(EngineEnded):
            embedder.submit([text(1), text(2)], media=media)
        embedder.connect(asking)
        job = embedder.submit([text(1), text(2), text(3), text(1)], media=media)
        assert lengths(await job.future) == [1, 2, 3, 1]

    run(script, work)
    assert script.batches == [[1], [2], [3, 1]]


def test_texts_of_a_client_that_left_cost_nothing() -> None:
    script = Script()

    async def work(embedder: Embedder) -> None:
        script.free.clear()
        running = embedder.submit([text(1), text(10)])
        await until(lambda: len(script.batches) == 1)
        gone, stays = embedder.submit([text(9)]), embedder.submit([text(2)])
        running.abort()
        gone.abort()
        assert embedder.n_texts_waiting == 1
        script.free.set()
        assert lengths(await stays.future) == [2]

    run(script, work)
    assert script.batches == [[1], [2]]


def test_a_failed_batch_fails_its_requests_only() -> None:
    script = Script()

    async def work(embedder: Embedder) -> None:
        script.fails_with = -3
        with pytest.raises(ComputeFailed, match="-3"):
            await embedder.submit([text(5), text(9)]).future
        script.fails_with = None
        assert lengths(await embedder.submit([text(1)]).future) == [1]
        assert embedder.counts.n_failures == 1
        assert embedder.counts.n_texts == 1
        assert embedder.n_jobs == 0

    run(script, work)
    assert script.batches == [[5], [1]]


def test_the_queue_is_bounded_and_what_left_makes_room() -> None:
    script = Script()

    async def work(embedder: Embedder) -> None:
        script.free.clear()
        jobs = [embedder.submit([text(1)]) for _ in range(3)]
        assert not embedder.can_accept()
        jobs[2].abort()
        assert embedder.can_accept()
        jobs[2] = embedder.submit([text(1)])
        assert not embedder.can_accept()
        script.free.set()
        await asyncio.gather(*(job.future for job in jobs))
        await until(embedder.can_accept)

    run(script, work, jobs_max=3)


@pytest.mark.parametrize(("is_stop", "error"), [(True, Stopped), (False, EngineEnded)])
def test_the_end_answers_what_waits_and_what_is_computed(is_stop: bool, error: type[Exception]) -> None:
    script = Script()

    async def work(embedder: Embedder) -> None:
        script.free.clear()
        running, waiting = embedder.submit([text(1), text(10)]), embedder.submit([text(2)])
        await until(lambda: len(script.batches) == 1)
        if is_stop:
            embedder.close()
        else:
            embedder.disconnect()
        for job in (running, waiting):
            with pytest.raises(error):
                await job.future
        with pytest.raises(EngineEnded):
            await embedder.submit([text(3)]).future
        assert embedder.n_jobs == 0

    run(script, work)
    assert script.batches == [[1]]


class Mortal(Script):
    """A computer that never returns from a batch after the first n_free."""

    def __init__(self, n_free: int) -> None:
        super().__init__()
        self.n_free = n_free

    def compute(self, memory: memoryview, lengths: list[int]) -> int:
        if len(self.batches) == self.n_free:
            self.free.clear()
        return super().compute(memory, lengths)


def test_the_next_engine_computes_what_the_last_one_did_not() -> None:
    script, other = Mortal(1), Script()

    async def work(embedder: Embedder) -> None:
        embedder.resume_max = 1
        first, waiting = embedder.submit([text(10), text(9), text(8)]), embedder.submit([text(2)])
        await until(lambda: len(script.batches) == 2)
        embedder.disconnect()
        embedder.connect(LocalAsking(computer=other))
        script.free.set()
        assert lengths(await first.future) == [10, 9, 8]
        assert lengths(await waiting.future) == [2]

    run(script, work)
    assert script.batches == [[10], [9]]
    assert other.batches == [[9], [8, 2]]


def test_a_request_that_goes_on_is_noted() -> None:
    """It was not, so that engines were given up after ten ends although each of them continued the last one's work."""
    script, other = Mortal(1), Script()
    info = script.info
    n_went_on = 0

    def on_went_on() -> None:
        nonlocal n_went_on
        n_went_on += 1

    async def work() -> None:
        embedder = Embedder(info, jobs_max=9, n_pack=10, n_texts_max=4, resume_max=1, on_went_on=on_went_on)
        embedder.connect(LocalAsking(computer=script))
        running, waiting = embedder.submit([text(10), text(9)]), embedder.submit([text(8)])
        await until(lambda: len(script.batches) == 2)
        assert n_went_on == 0
        embedder.disconnect()
        embedder.connect(LocalAsking(computer=other))
        script.free.set()
        assert lengths(await running.future) == [10, 9]
        assert n_went_on == 1
        assert lengths(await waiting.future) == [8]
        assert n_went_on == 1
        embedder.close()

    asyncio.run(work())


def test_a_request_that_two_engines_computed_when_they_ended_fails() -> None:
    scripts = [Mortal(0), Mortal(0), Script()]

    async def work(embedder: Embedder) -> None:
        embedder.resume_max = 1
        running, waiting = embedder.submit([text(10)]), embedder.submit([text(3)])
        for script, following in pairwise(scripts):
            await until(lambda: len(script.batches) == 1)  # noqa: B023
            embedder.disconnect()
            embedder.connect(LocalAsking(computer=following))
            script.free.set()
        with pytest.raises(EngineEnded):
            await running.future
        assert lengths(await waiting.future) == [3]

    run(scripts[0], work)


def test_without_another_engine_they_fail() -> None:
    script = Script()

    async def work(embedder: Embedder) -> None:
        embedder.resume_max = 1
        script.free.clear()
        job = embedder.submit([text(10)])
        await until(lambda: len(script.batches) == 1)
        embedder.disconnect()
        assert not job.future.done()
        embedder.fail_orphans(EngineEnded())
        with pytest.raises(EngineEnded):
            await job.future

    run(script, work)


def test_another_engine_goes_on() -> None:
    script = Script()

    async def work(embedder: Embedder) -> None:
        embedder.disconnect()
        embedder.connect(LocalAsking(computer=script))
        assert lengths(await embedder.submit([text(4)]).future) == [4]

    run(script, work)
