"""Grammars as the daemon keeps them, and what one request may cost the others. Over the fake model."""

import asyncio
import json

import pytest
from support.fake_daemon import Faked
from support.local_engine import LocalAsking

from llamad.api.request import constraints
from llamad.api.request.constraints import ConstraintSource, Grammars
from llamad.engine.testing.fake import Fake
from llamad.tokenizer.vocab import Vocab


@pytest.fixture(scope="module")
def server():
    with Faked(Fake(), "-np", "2") as server:
        yield server


class Compiler:
    """The one thing that grammars want of an engine."""

    def __init__(self):
        self._fake = Fake()
        self._asking = LocalAsking(Vocab(self._fake.table, self._fake.vocab, self._fake.n_vocab))

    async def compile(self, text, time_max_us):
        return await self._asking.compile(text, time_max_us)


@pytest.fixture
def engine():
    return Compiler()


class Counted(Grammars):
    def __init__(self):
        super().__init__()
        self.compiled = []

    def compile(self, wanted, engine, loop):
        self.compiled.append(wanted.grammar)
        return super().compile(wanted, engine, loop)


def test_requests_with_one_new_grammar_compile_it_once(engine):
    kept = Counted()

    async def ask():
        wanted = ConstraintSource('root ::= "a"')
        return await asyncio.gather(*(kept.find(0, wanted, engine) for _ in range(5)))

    grammars = asyncio.run(ask())
    kept.close()
    assert kept.compiled == ['root ::= "a"']
    assert len({id(one) for one in grammars}) == 1


def test_small_texts_that_make_large_automata_are_not_all_kept(engine, monkeypatch):
    monkeypatch.setattr(constraints, "KEPT_BYTES_MAX", 5_000_000)
    kept = Grammars()
    wanted = [ConstraintSource(f'root ::= "{letter}"{{0,50000}}') for letter in "abcdef"]

    async def ask():
        for one in wanted:
            await kept.find(0, one, engine)

    asyncio.run(ask())
    kept.close()
    assert kept.known(wanted[-1]) is not None
    assert sum(kept.known(one) is not None for one in wanted) < 5


def test_large_options_times_many_completions_are_refused(server):
    bias = [[i % 256, 0.5] for i in range(65536)]
    answer = server.client.post(
        "/completion",
        {"prompt": ["a"] * 100, "n_predict": 1, "logit_bias": bias, "response_fields": ["stop"]},
    )
    assert answer.status == 400
    assert "100 completions with options this large" in answer.error["message"]
    answer = server.client.post(
        "/completion", {"prompt": ["a"] * 3, "n_predict": 1, "logit_bias": bias, "response_fields": ["stop"]}
    )
    assert json.loads(answer.body) == [{"stop": True}] * 3


@pytest.mark.parametrize("paths", [["stop"] * 257, ["a/" * 200]])
def test_response_fields_are_counted(server, paths):
    answer = server.client.post("/completion", {"prompt": "a", "n_predict": 1, "response_fields": paths})
    assert answer.status == 400
    assert "response_fields" in answer.error["message"]
