"""A model's prompts on disk: who gets which entry, and that a request never waits or fails for it. The engine is a fake
that notes its actions."""

import asyncio
from types import SimpleNamespace

import pytest
from support.states.disk_cache import Disk
from support.states.fake_cache_memory import PLAIN, FakeMemory, packed, ses1, tokens_of
from support.states.ses1_layouts import N_VOCAB, learn

from llamad.client.adapters import NO_ADAPTERS, AdapterSet
from llamad.client.events import Acted
from llamad.models import disk_prompts
from llamad.models.cache_disk import reader
from llamad.models.disk_prompts import DiskPrompts, Hint
from llamad.protocol.blobs import Arena
from llamad.protocol.messages import ACTION_INSERT, RESULT_DONE, RESULT_ENGINE, RESULT_NO_ROOM

TOKENS = tokens_of(1, 1000)


class Engine:
    def __init__(self) -> None:
        self.actions = []
        self.result = RESULT_DONE
        self.is_stuck = False
        self.counts = {"n_prompt_tokens": 0, "prompt_us": 0}

    def stats(self):
        return self.counts

    async def act(self, action):
        self.actions.append(action)
        assert action.n_bytes == len(action.blob)
        if self.is_stuck:
            await asyncio.sleep(3600)
        return Acted(self.result)


class Model:
    """A host, and what a daemon before it has left on the disk: the same prompt of two keys."""

    def __init__(self, path) -> None:
        disk = Disk(path)
        disk.source._build = ""
        self.engine = Engine()
        self.host = SimpleNamespace(
            settings=SimpleNamespace(alias=None, model="/models/tiny.gguf", n_parallel=2),
            arena=Arena(),
            cache_memory=FakeMemory("model"),
            owners={"key-one": 7},
            model=SimpleNamespace(info=SimpleNamespace(n_vocab=N_VOCAB), n_ctx_slot=4096),
            engine=self.engine,
            states=SimpleNamespace(layout=learn(PLAIN), takes_parts=False),
            prefix="",
        )
        for owner in (0, 1):
            disk.memory.put(TOKENS, owner=owner)
        disk.step()
        self.cache = disk.cache
        self.prompts = DiskPrompts(self.host, self.cache, "build")
        self.prompts.source._build = ""
        self.prompts.source.layout = learn(PLAIN)

    def find(self, owner: int = 0, adapters: AdapterSet = NO_ADAPTERS):
        return self.prompts.find(owner, adapters, packed([*TOKENS, 1, 2]))

    async def insert(self, owner: int = 0) -> bool:
        wanted = self.find(owner)
        assert wanted is not None
        return await self.prompts.insert(wanted, owner, Hint(55, 300), NO_ADAPTERS)


@pytest.fixture
def model(tmp_path):
    made = Model(tmp_path)
    yield made
    made.cache.reader.close()


def test_the_engine_gets_the_state_for_the_owner_of_the_request(model):
    assert asyncio.run(model.insert(7))
    (action,) = model.engine.actions
    assert (action.kind, action.owner, action.session, action.n_tokens) == (ACTION_INSERT, 7, 55, 1000)
    assert bytes(action.blob) == ses1(TOKENS)
    assert action.n_bytes == len(ses1(TOKENS))
    assert model.find(7) is None  # the engine has it now
    assert asyncio.run(model.insert(0))


def test_an_engine_that_takes_parts_gets_them_in_order(model):
    model.host.states.takes_parts = True
    assert asyncio.run(model.insert(7))
    actions = model.engine.actions
    assert [(one.n_begin, one.n_tokens) for one in actions] == [(0, 256), (256, 512), (512, 768), (768, 1000)]
    assert {(one.kind, one.owner, one.session) for one in actions} == {(ACTION_INSERT, 7, 55)}
    assert model.find(7) is None


def test_memory_is_used_again_when_the_engine_has_its_part(model, monkeypatch):
    model.host.states.takes_parts = True
    monkeypatch.setattr(disk_prompts, "AT_ONCE", 1)
    monkeypatch.setattr(reader, "N_AHEAD", 1)
    seen = []

    async def act(action):
        seen.append((action.blob.id, bytes(action.blob)))
        await asyncio.sleep(0)
        assert bytes(action.blob) == seen[-1][1]
        return Acted(RESULT_DONE)

    model.engine.act = act
    assert asyncio.run(model.insert())
    assert len(seen) == 4
    assert len({blob for blob, _ in seen}) < 4
    assert len({data for _, data in seen}) == 4


def test_parts_that_an_engine_does_not_take_end_it(model):
    model.host.states.takes_parts = True
    model.engine.result = RESULT_NO_ROOM
    assert not asyncio.run(model.insert())
    assert 1 <= len(model.engine.actions) <= 4
    assert model.cache.counts.n_reads <= 1


def test_nothing_is_looked_for_if_it_could_not_be_used(model):
    assert model.find(8) is None  # a number of no key
    assert model.find(0, AdapterSet(number=5, base=4, n_base=10)) is None
    assert model.find(0, AdapterSet(number=5)) is None
    model.host.states.layout = None
    assert model.find(0) is None
    model.host.states.layout = learn(PLAIN)
    assert model.find(0) is not None
    model.host.engine = None
    assert model.find(0) is None


def test_requests_that_need_the_same_entry_read_it_once(model):
    async def run():
        wanted = [model.find(0) for _ in range(5)]
        first, *others = [
            asyncio.ensure_future(model.prompts.insert(one, 0, Hint(), NO_ADAPTERS)) for one in wanted
        ]
        await asyncio.sleep(0)
        first.cancel()  # its client leaves
        return await asyncio.gather(*others)

    assert asyncio.run(run()) == [True] * 4
    assert len(model.engine.actions) == 1
    assert model.cache.counts.n_reads == 1


def test_a_request_that_comes_when_it_was_read_does_not_read_it_again(model):
    async def run():
        act = model.engine.act

        async def ask():
            wanted = model.find(0)
            return wanted is None or await model.prompts.insert(wanted, 0, Hint(), NO_ADAPTERS)

        async def acted(action):
            done = await act(action)
            asyncio.get_running_loop().call_soon(lambda: later.append(asyncio.create_task(ask())))
            return done

        later = []
        model.engine.act = acted
        assert await model.insert(0)
        while not later:
            await asyncio.sleep(0)
        return await asyncio.gather(*later, ask())

    assert asyncio.run(run()) == [True, True]
    assert len(model.engine.actions) == 1
    assert model.cache.counts.n_reads == 1


@pytest.mark.parametrize("result", [RESULT_NO_ROOM, RESULT_ENGINE])
def test_an_engine_that_does_not_take_it_computes(model, result):
    model.engine.result = result
    assert not asyncio.run(model.insert())
    assert model.find() is None  # the prompt was submitted


def test_a_bug_costs_the_cache_and_not_the_request(model, caplog):
    model.engine.act = None
    assert not asyncio.run(model.insert())
    assert "reading a prompt from disk failed" in caplog.text


def test_an_engine_that_is_busy_for_long_is_not_waited_for(model):
    model.engine.is_stuck = True
    model.engine.counts = {"n_prompt_tokens": 1000, "prompt_us": 200_000}

    async def run():
        wanted = model.find()
        assert wanted.seconds == pytest.approx(0.0002 * 1000)
        return await model.prompts.insert(wanted, 0, Hint(), NO_ADAPTERS)

    assert not asyncio.run(asyncio.wait_for(run(), 20))


def test_what_a_model_leaves_is_written_once_more(model):
    model.host.cache_memory.put(tokens_of(5, 600))
    model.prompts.close()
    model.cache.writer.step()
    assert len(model.cache.folder.names()) == 11
    model.host.cache_memory.put(tokens_of(6, 600))
    model.cache.writer.step()
    assert len(model.cache.folder.names()) == 11
