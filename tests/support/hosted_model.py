"""A model in this process, with its engine and its slots' states: everything under the endpoints."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Coroutine
from typing import Any, TypeVar

from llamad.client.adapters import NO_ADAPTERS, AdapterSet
from llamad.client.engine_client import EngineClient
from llamad.client.events import Done, TokenProbs
from llamad.client.slot_states import States
from llamad.client.step_trace import StepTrace
from llamad.client.task import RequestContext, Task
from llamad.client.text_event import TextEvent
from llamad.engine.drafts.drafts import Drafter
from llamad.engine.instance import Instance
from llamad.engine.llama_log import LlamaLog
from llamad.engine.loading.opening import Loading
from llamad.flags.parse import parse
from llamad.models.connections import states_layout
from llamad.options.table import Options
from llamad.protocol.channel import Descriptors
from support.engine_harness import GREEDY
from support.local_engine import LocalAsking, LocalEngine

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
    """With one thread, as the tests of the whole program have it. A drafter replaces those that the flags name; every
    step verifies n_fixed tokens of it. Raises LoadError."""

    def __init__(self, model: str, *flags: str, drafter: Drafter | None = None, n_fixed: int = -1) -> None:
        self.settings = settings = parse(
            ["-m", model, "-t", "1", "-np", "1", "--slots", *flags], {}
        ).settings.model
        self.loop = asyncio.new_event_loop()
        self.log = LlamaLog()  # else llama.cpp writes to stderr
        try:
            self.instance = Instance(settings, Descriptors.create(), Loading())
            ready = self.instance.prepare()
        finally:
            self.log.drain()
        core = self.instance.core
        assert core is not None
        assert drafter is None or core.draft_with(drafter, n_fixed, self.instance.loaded.n_rollback)
        trace = StepTrace(settings.step_trace) if settings.step_trace else None
        self.engine = EngineClient(n_slots=settings.n_parallel, queue_max=settings.queue_max, trace=trace)
        self.vocab = self.instance.loaded.vocab
        self.local = LocalEngine(core, self.engine, LocalAsking(self.vocab))
        self.run(self._start())
        layout, refusal = states_layout(settings, ready)
        self.states = States(
            self.engine,
            layout,
            refusal,
            n_vocab=self.instance.loaded.info.n_vocab,
            n_ctx=self.instance.loaded.n_ctx_slot,
        )

    async def _start(self) -> None:
        self.local.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, WAIT_SECONDS))

    async def write(
        self,
        slot: int,
        tokens: list[int],
        n_predict: int,
        n_probs: int = 0,
        adapters: AdapterSet = NO_ADAPTERS,
    ) -> tuple[Sink, Done]:
        """Greedy tokens behind these, in this slot."""
        sink = Sink()
        prompt = struct.pack(f"<{len(tokens)}i", *tokens)
        context = RequestContext("hosted")
        self.engine.submit(
            Task(
                context,
                prompt,
                GREEDY,
                Options(id_slot=slot, n_predict=n_predict, n_probs=n_probs),
                stream=True,
                adapters=adapters,
            ),
            sink,
        )
        return sink, await sink.done

    def read(self, slot: int, tokens: list[int], adapters: AdapterSet = NO_ADAPTERS) -> None:
        """The slot holds exactly these."""
        self.run(self.write(slot, tokens, 0, adapters=adapters))

    def next(
        self, slot: int, tokens: list[int], n_cached: int, adapters: AdapterSet = NO_ADAPTERS
    ) -> list[TokenProbs]:
        """The likeliest tokens behind these with their logprobs, of which the slot must hold the first n_cached."""
        sink, done = self.run(self.write(slot, tokens, 1, n_probs=40, adapters=adapters))
        assert done.n_cached == n_cached
        return sink.probs

    def __enter__(self) -> Hosted:
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.local.stop())
        self.engine.close()
        self.states.close()
        self.local.close()
        self.instance.close()
        self.log.drain()
        self.loop.close()
