"""The thread that computes embeddings and scores, batch by batch, in the order of the front's messages.

The front packs the batches (llamad/client/embedding.py). It must not touch the generating context, because generation
runs concurrently.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Protocol

from llamad.protocol import blobs
from llamad.protocol.control_messages import Embed, Embedded, MediaRun, Share

log = logging.getLogger("llamad.engine")


class Computer(Protocol):
    """The methods of a context that the thread needs."""

    def use(self, adapters: list[tuple[int, float]]) -> int:
        """Set the adapters for the next texts. Return 0, or an error code."""
        ...

    def compute(self, memory: memoryview, lengths: list[int]) -> int: ...

    def compute_mixed(self, memory: memoryview, n_tokens: int, runs: list[MediaRun]) -> int: ...

    def set_threads(self, n_threads: int, n_threads_batch: int) -> None: ...


class Embedder:
    """`arena` is the descriptor of the front's blobs, `reply` sends a result, and the thread calls `begin` first."""

    def __init__(
        self,
        computer: Computer,
        arena: int,
        reply: Callable[[Embedded], None],
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        self._computer = computer
        self._arena = arena
        self._reply = reply
        self._begin = begin
        self._messages: queue.SimpleQueue[Embed | Share] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="llamad-embedder", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, message: Embed | Share) -> None:
        self._messages.put(message)

    def _run(self) -> None:
        self._begin()
        while True:
            batch = self._messages.get()
            if isinstance(batch, Share):
                self._computer.set_threads(batch.n_threads, batch.n_threads_batch)
                continue
            t_start = time.monotonic()
            code = self._compute(batch)
            if code != 0:
                log.error("a batch of %d texts failed: llama.cpp returned %d", len(batch.lengths), code)
            self._reply(Embedded(batch.id, code, time.monotonic() - t_start))

    def _compute(self, batch: Embed) -> int:
        if not blobs.borrow(self._arena, batch.blob, batch.capacity):
            return -1
        try:
            code = self._computer.use(batch.adapters)
            if code != 0:
                return code
            memory = blobs.borrowed(batch.blob)
            if batch.runs:
                (n_tokens,) = batch.lengths
                return self._computer.compute_mixed(memory, n_tokens, batch.runs)
            return self._computer.compute(memory, batch.lengths)
        except Exception:
            log.exception("a batch of %d texts failed", len(batch.lengths))
            return -1
        finally:
            blobs.give_back(batch.blob)
