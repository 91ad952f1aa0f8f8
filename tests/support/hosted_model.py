"""A model in this process, with its engine and its slots' states: everything under the endpoints."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Coroutine
from typing import Any, TypeVar

from llamad.client.slot_states import States
from llamad.client.task import Done, RequestContext, Task, TokenProbs
from llamad.client.text_event import TextEvent
from llamad.engine import llama_log as llamalog
from llamad.flags import parse
from llamad.models.host import Host, State
from support.engine_harness import GREEDY

T = TypeVar("T")
WAIT_SECONDS = 60


class Sink:
    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.probs: list[TokenProbs] = []
        self.done: asyncio.Future[Done] = asyncio.get_running_loop().create_future()

    def on_admitted(self, *_: object) -> None:
        pass

    def on_text(self, text: TextEvent) -> None:
        self.tokens += text.tokens
        self.probs += text.probs

    def on_done(self, done: Done) -> None:
        self.done.set_result(done)

    def on_failed(self, failure: int, code: int) -> None:
        self.done.set_exception(RuntimeError(f"failure {failure}, code {code}"))

    def on_broken(self) -> None:
        self.done.set_exception(RuntimeError("broken"))


class Hosted:
    """With one thread, as the tests of the whole program have it."""

    def __init__(self, model: str, *flags: str) -> None:
        settings = parse(["-m", model, "-t", "1", "--slots", *flags], {}).settings
        self.loop = asyncio.new_event_loop()
        self.log = llamalog.LlamaLog()  # else llama.cpp writes to stderr
        self.log.attach(self.loop)
        self.host = Host(settings)
        self.run(self.host.load())
        assert self.host.state is State.READY, self.host.error
        assert self.host.states is not None
        assert self.host.engine is not None
        self.states: States = self.host.states
        self.engine = self.host.engine

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, WAIT_SECONDS))

    async def write(
        self, slot: int, tokens: list[int], n_predict: int, n_probs: int = 0
    ) -> tuple[Sink, Done]:
        """Greedy tokens behind these, in this slot."""
        sink = Sink()
        prompt = struct.pack(f"<{len(tokens)}i", *tokens)
        context = RequestContext("hosted")
        self.engine.submit(
            Task(context, prompt, GREEDY, id_slot=slot, n_predict=n_predict, stream=True, n_probs=n_probs),
            sink,
        )
        return sink, await sink.done

    def read(self, slot: int, tokens: list[int]) -> None:
        """The slot holds exactly these."""
        self.run(self.write(slot, tokens, 0))

    def next(self, slot: int, tokens: list[int], n_cached: int) -> list[TokenProbs]:
        """The likeliest tokens behind these with their logprobs, of which the slot must hold the first n_cached."""
        sink, done = self.run(self.write(slot, tokens, 1, n_probs=40))
        assert done.n_cached == n_cached
        return sink.probs

    def __enter__(self) -> Hosted:
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.host.close())
        if self.host.loaded is not None:
            self.host.loaded.close()
        self.log.detach(self.loop)
        self.loop.close()
