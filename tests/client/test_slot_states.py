"""Slot states above the engine: buffers, checks, waiting and withdrawing, and the answers as exceptions. Fake model."""

import asyncio
import functools
from contextlib import asynccontextmanager

import pytest
from support.engine_harness import GREEDY, Harness, learn_layout
from support.local_engine import local_engine
from support.states.ses1_layouts import as_blob

from llamad.client.adapters import Adapters
from llamad.client.slot_states import SlotBusy, StateRefused, States
from llamad.client.task import RequestContext, Task
from llamad.engine.testing.fake import Fake
from llamad.flags.types.values import AdapterFile
from llamad.options.table import Options
from llamad.protocol.blobs import Blob
from llamad.protocol.model_info import AdapterInfo
from llamad.ses1 import ses1

PROMPT = b"what the slot holds"
SIZE = 1 << 16


def tokens_of(text):
    return [0, *(3 + byte for byte in text)]


def counted(text, n):
    """What the fake writes behind a prompt: it counts on from its last byte."""
    return bytes((text[-1] + 1 + i) % 256 for i in range(n))


def in_a_loop(test):
    @functools.wraps(test)
    def run():
        asyncio.run(test())

    return run


class Collector:
    def __init__(self):
        self.text = b""
        self.ended = asyncio.get_running_loop().create_future()
        self.admitted = asyncio.get_running_loop().create_future()
        self.began = asyncio.get_running_loop().create_future()

    def on_admitted(self, *_):
        self.admitted.set_result(None)

    def on_text(self, text):
        self.text += text.data
        if not self.began.done():
            self.began.set_result(None)

    def on_done(self, done):
        self.ended.set_result(done)

    def on_failed(self, failure, code):
        self.ended.set_result(failure)


@asynccontextmanager
async def states_of(fake, adapters=None, **options):
    h = Harness(fake, **options)
    known = learn_layout(h.core, 5, 0)
    local = local_engine(h.core, n_slots=h.n_slots, queue_max=64)
    local.start()
    engine = local.engine
    states = States(engine, known, "", n_vocab=fake.n_vocab, n_ctx=512, adapters=adapters)
    try:
        yield local, states, h
    finally:
        fake.block(False)
        await local.stop()
        states.close()
    assert local.engine._actions == {}
    assert h.core.check_integrity() == 0
    assert fake.bad_calls == 0


def write(engine, h, text, slot, n_predict, **more):
    sink = Collector()
    prompt = h.vocab.tokenize(text, True, True)
    engine.submit(
        Task(
            RequestContext("x"),
            prompt,
            GREEDY,
            Options(id_slot=slot, n_predict=n_predict),
            stream=True,
            **more,
        ),
        sink,
    )
    return sink


@in_a_loop
async def test_states_are_saved_and_restored():
    async with states_of(Fake()) as (local, states, h):
        await write(local.engine, h, PROMPT, 0, 1).ended
        saved = await states.save(0)
        assert saved.n_tokens == len(tokens_of(PROMPT))
        restored = await states.restore(1, saved.blob)
        assert (restored.n_tokens, restored.n_bytes) == (saved.n_tokens, saved.blob.size)
        assert (await states.tokens(1)).tokens == (await states.look(0)).tokens == tokens_of(PROMPT)
        assert (await states.tokens(0)).n_processed == saved.n_tokens
        assert await states.shift(1, 2, 3) == saved.n_tokens - 3
        assert await states.erase(1) == saved.n_tokens - 3
        assert await states.erase(1) == 0
        with pytest.raises(StateRefused, match=r"must lie within the slot's 0 tokens") as caught:
            await states.shift(1, 2, 3)
        assert caught.value.status == 400


@in_a_loop
async def test_a_wrong_state_never_reaches_the_engine():
    async with states_of(Fake()) as (local, states, h):
        await write(local.engine, h, PROMPT, 0, 1).ended
        saved = await states.save(0)
        n_bad = 0
        for n in range(0, saved.blob.size, 7):
            with pytest.raises(StateRefused, match=r"The state cannot be restored: .") as caught:
                await states.restore(0, as_blob(bytes(saved.blob)[:n]))
            n_bad += caught.value.status == 400
        assert n_bad > 10
        assert (await states.tokens(0)).tokens == tokens_of(PROMPT)
        assert h.stats()["n_restores"] == 0


@in_a_loop
async def test_the_buffer_grows_with_the_slot():
    """It is made for what the slot holds when it is asked for, and the slot writes on meanwhile."""
    fake = Fake(decode_us=100)
    async with states_of(fake) as (local, states, h):
        sink = write(local.engine, h, PROMPT, 0, 300)
        await sink.began
        saved = await states.save(0)
        assert sink.ended.done()
        assert saved.n_tokens == len(tokens_of(PROMPT)) + 299
        assert ses1.check(states.layout, saved.blob, fake.n_vocab, 512)[0] == saved.n_tokens


@in_a_loop
async def test_a_state_that_grows_into_the_place_of_its_signature():
    """A recurrent state grows by the four bytes of each token, so that three more tokens still have room in the buffer,
    and the name of the adapters that computed it has none."""
    adapters = Adapters([AdapterFile("a", 1.0, "")], apply=True)
    adapters.opened([AdapterInfo(0, bytes(32), 4, "", "", ())])
    async with states_of(Fake(recurrent=True), adapters) as (local, states, h):
        used = adapters.chosen(adapters.uses(None), b"")
        await write(local.engine, h, PROMPT, 0, 4, adapters=used).ended
        states._n_tokens = lambda _: len(tokens_of(PROMPT))  # as it was when the buffer was made
        saved = await states.save(0)
        assert saved.n_tokens == len(tokens_of(PROMPT)) + 3
        assert (await states.restore(1, saved.blob)).n_tokens == saved.n_tokens


@in_a_loop
async def test_who_stops_waiting_is_withdrawn():
    fake = Fake(decode_us=200)
    async with states_of(fake) as (local, states, h):
        sink = write(local.engine, h, PROMPT, 0, 200)
        await sink.began
        waiting = [asyncio.ensure_future(states.erase(0)), asyncio.ensure_future(states.save(0))]
        await asyncio.sleep(0.005)
        with pytest.raises(SlotBusy):
            await states.erase(0, nowait=True)
        for one in waiting:
            one.cancel()
        await asyncio.wait(waiting)
        assert all(one.cancelled() for one in waiting)
        await sink.ended
        assert sink.text == counted(PROMPT, 200)
        assert len((await states.tokens(0)).tokens) == len(tokens_of(PROMPT)) + 199


@in_a_loop
async def test_the_end_of_the_engine_answers_everybody():
    fake = Fake(decode_us=1000)
    async with states_of(fake) as (local, states, h):
        sink = write(local.engine, h, PROMPT, 0, -1)
        await sink.began
        waiting = [asyncio.ensure_future(states.save(0)) for _ in range(3)]
        await asyncio.sleep(0.01)
        await local.stop()
        for one in waiting:
            with pytest.raises(StateRefused, match="shutting down") as caught:
                await one
            assert caught.value.status == 503


@in_a_loop
async def test_a_model_whose_states_cannot_be_saved():
    async with states_of(Fake()) as (local, _states, _):
        without = States(
            local.engine, None, "with --grp-attn-n its positions are grouped", n_vocab=259, n_ctx=512
        )
        for call in (without.save(0), without.restore(0, Blob(8))):
            with pytest.raises(StateRefused, match="grouped") as caught:
                await call
            assert caught.value.status == 501
        assert without.bytes_max == 0
        assert await without.erase(0) == 0
        without.close()
