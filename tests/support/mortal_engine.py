"""Engines over the fake model that end at any moment, and the front's client, which goes on with the next one."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from llamad.client.engine_client import EngineClient
from llamad.client.events import Done
from llamad.client.port import Port
from llamad.client.task import Sink, Task
from llamad.client.text_event import TextEvent
from llamad.engine.core import Core
from llamad.engine.testing.fake import Fake
from llamad.protocol.channel import Link
from llamad.protocol.messages import FAILURE_ABORTED, RESULT_ABORTED
from llamad.tokenizer.vocab import Vocab
from support.local_engine import LocalAsking

WAIT_SECONDS = 30


class Collected(Sink):
    """All that a task has told."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.data = b""
        self.probs: list[Any] = []
        self.prompt: list[tuple[int, Any]] = []
        self.progress: list[int] = []
        self.times = [0]
        self.n_decoded = [0]
        self.admitted = 0
        self.n_cached = -1
        self.done: Done | None = None
        self.failed: tuple[int, int] | None = None
        self.ended = asyncio.Event()

    def on_admitted(self, slot: int, n_cached: int, t_us: int) -> None:
        self.admitted += 1
        self.n_cached = n_cached

    def on_prompt(self, tokens: list[int], probs: Any) -> None:
        self.prompt += zip(tokens, probs, strict=True)

    def on_progress(self, n_processed: int, prompt_us: int) -> None:
        self.progress.append(n_processed)

    def on_text(self, text: TextEvent) -> None:
        self.tokens += text.tokens
        self.data += text.data
        self.probs += text.probs
        self.times.append(text.predict_us)
        self.n_decoded.append(text.n_decoded)

    def on_done(self, done: Done) -> None:
        self.done = done
        self.ended.set()

    def on_failed(self, failure: int, code: int) -> None:
        self.failed = (failure, code)
        self.ended.set()

    def on_broken(self) -> None:
        raise AssertionError("a sink raised an exception")

    def result(self) -> tuple[Any, ...]:
        """What must not depend on engines."""
        done = self.done
        assert done is not None, self.failed
        return (
            self.data,
            self.tokens,
            self.probs,
            self.prompt,
            (done.stop_type, done.stop_word, done.n_prompt, done.n_decoded),
            (done.truncated, done.has_new_line),
        )


class Asking(LocalAsking):
    """Keeps grammars, because the thread of an engine that was killed may still use them."""

    def drop_grammar(self, number: int) -> None:
        pass


class MortalEngine:
    """`make` returns a new model, `options` are those of the cores. Every engine has its own model and thread."""

    def __init__(
        self,
        make: Callable[[], Fake],
        *,
        resume_max: int = 1,
        drafts: Callable[[Core, Fake], None] | None = None,
        n_slots: int = 4,
        n_ctx: int = 512,
        n_batch: int = 64,
        **options: Any,
    ) -> None:
        self._make = make
        self._drafts = drafts
        self._options = {
            "n_slots": n_slots,
            "n_ctx": n_ctx,
            "n_batch": n_batch,
            "n_cells": 0,
            "n_swa": 0,
            "n_ubatch": min(512, n_batch),
            "add_bos": True,
            "similarity_min": 0.5,
            "step_tokens_max": 0,
            "n_sampler_threads": 2,
            "cont_batching": True,
            "tracing": False,
        } | options
        self._first = make()  # whose vocabulary all engines have, as that of a model's file
        self.vocab = Vocab(self._first.table, self._first.vocab, self._first.n_vocab)
        self.n_went_on = 0
        self.client = EngineClient(
            n_slots=n_slots, queue_max=64, resume_max=resume_max, on_went_on=self._on_went_on
        )
        self.n_engines = 0
        self._asked: list[Asking] = []
        self._ended: list[tuple[Core, Link, Fake, threading.Thread]] = []
        self.start()

    def _on_went_on(self) -> None:
        self.n_went_on += 1

    def start(self) -> None:
        """Start an engine, to which the tasks of the last one go."""
        self.fake = self._make() if self.n_engines else self._first
        self.n_engines += 1
        self.core = Core(self.vocab, self.fake.ctx, **self._options)
        if self._drafts is not None:
            self._drafts(self.core, self.fake)
        self.thread = threading.Thread(target=self.core.run, daemon=True)
        self.asking = Asking(self.vocab)
        self.link = self.core.link
        self.client.connect(self.link, self.asking, self.vocab)
        self.thread.start()

    def kill(self) -> None:
        """End the engine in the middle of a decode: what it has not written by then never comes."""
        self.fake.block(True)
        t_end = time.monotonic() + 0.05  # it may have nothing to decode
        while not self.fake.is_waiting and time.monotonic() < t_end:
            time.sleep(0.0001)
        self.client.disconnect()
        self._ended.append((self.core, self.link, self.fake, self.thread))
        self._asked.append(self.asking)

    async def crash(self) -> None:
        """End the engine, and start another a little later."""
        self.kill()
        await asyncio.sleep(0.001)
        self.start()

    def submit(self, task: Task) -> Collected:
        sink = Collected()
        sink.task_id = self.client.submit(task, sink)  # type: ignore[attr-defined]
        return sink

    async def run(
        self, tasks: list[Task], crashes: random.Random | None = None, n_crashes: int = 3
    ) -> list[Any]:
        """Run the tasks to their ends, with crashes at random moments, and return their results."""
        sinks = [self.submit(task) for task in tasks]

        def n_tokens() -> int:
            return sum(len(sink.tokens) for sink in sinks)

        for _ in range(n_crashes if crashes is not None else 0):
            assert crashes is not None
            t_end, n_more = time.monotonic() + 0.2, n_tokens() + crashes.randrange(60)
            while (
                n_tokens() < n_more and time.monotonic() < t_end and not all(s.ended.is_set() for s in sinks)
            ):
                await asyncio.sleep(0)
            await self.crash()
        for sink in sinks:
            await asyncio.wait_for(sink.ended.wait(), WAIT_SECONDS)
            assert sink.admitted == 1
            assert sink.times == sorted(sink.times)
            assert sink.n_decoded == sorted(set(sink.n_decoded))
            assert sink.progress == sorted(set(sink.progress))
        return [sink.result() for sink in sinks]

    async def close(self) -> None:
        """End all engines, and check those that were not killed."""
        self.client.stop()
        while self.thread.is_alive():
            await asyncio.sleep(0.001)
        self.client.disconnect(FAILURE_ABORTED, RESULT_ABORTED)
        assert self.core.check_integrity() == 0
        assert self.fake.bad_calls == 0
        assert self.fake.n_wrong == 0
        for core, link, fake, thread in self._ended:
            assert Port(link).stop()
            fake.block(False)
            fake.block_removals(False)
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive()
            core.descriptors.close()
        self.core.descriptors.close()
