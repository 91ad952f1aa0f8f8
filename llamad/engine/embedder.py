"""Owns the queue of texts to embed, and the thread that computes them in batches.

submit() and abort are for the event loop; the thread touches jobs only under the lock and releases the GIL while
llama.cpp computes. Must not touch the generating context: generation runs concurrently.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from typing import Protocol

from llamad.base.fair_count import share_of
from llamad.protocol.errors import ComputeFailed, Stopped
from llamad.protocol.model_info import Rows, VectorCounts, VectorInfo

log = logging.getLogger("llamad.engine")

STOP_SECONDS = 1.0
STOP_POLL_SECONDS = 0.005


class Computer(Protocol):
    """The part of a context that the thread needs."""

    n_seq_max: int
    n_pack: int

    @property
    def info(self) -> VectorInfo: ...
    def compute(self, texts: list[bytes]) -> list[Rows]: ...


class Job:
    """All texts of one request. `future` gives the rows of each, in order."""

    __slots__ = ("client", "future", "is_gone", "n_left", "n_taken", "rows", "texts")

    def __init__(self, texts: list[bytes], future: asyncio.Future[list[Rows]], client: int) -> None:
        self.client = client
        self.texts = texts
        self.future = future
        self.rows: list[Rows | None] = [None] * len(texts)
        self.n_taken = 0  # texts computed or being computed
        self.n_left = len(texts)
        self.is_gone = False

    def abort(self) -> None:
        """The client has disconnected, or its deadline has passed: texts not started are dropped."""
        self.is_gone = True
        self.future.cancel()


class Embedder:
    """`n_jobs` counts requests waiting or being computed."""

    def __init__(self, computer: Computer, *, jobs_max: int) -> None:
        self._computer = computer
        self.info = computer.info
        self.jobs_max = jobs_max
        self.counts = VectorCounts()
        self._jobs: deque[Job] = deque()
        self._served: dict[int, int] = {}  # clients with jobs: the batch that last had texts of theirs
        self._changed = threading.Condition()
        self._is_stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="llamad-embedder", daemon=True)

    # On the event loop.

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """Stop the thread, or leave it in a long batch: the process is about to exit. Waiting jobs get Stopped."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        t_end = time.monotonic() + STOP_SECONDS
        while self._thread.is_alive() and time.monotonic() < t_end:
            await asyncio.sleep(STOP_POLL_SECONDS)
        if self._thread.is_alive():
            log.warning("the embedder is in a long batch; exiting without waiting for it")
        with self._changed:
            jobs, self._jobs = list(self._jobs), deque()
        for job in jobs:
            if not job.future.done():
                job.future.set_exception(Stopped())
        await asyncio.sleep(0)  # a request that awaits one can still respond

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def n_jobs(self) -> int:
        return len(self._jobs)

    @property
    def n_texts_waiting(self) -> int:
        return sum(len(job.texts) - job.n_taken for job in list(self._jobs) if not job.is_gone)

    def can_accept(self) -> bool:
        """Whether the queue has room for one more request."""
        return len(self._jobs) < self.jobs_max or any(job.is_gone for job in list(self._jobs))

    def has_share(self, client: int) -> bool:
        """Whether one more request of this client leaves room for others."""
        return sum(job.client == client for job in list(self._jobs)) < share_of(self.jobs_max)

    def submit(self, texts: list[bytes], client: int = 0) -> Job:
        """Queue the texts of a request, each int32 token ids and not longer than info.n_text_max."""
        assert self._loop is not None
        job = Job(texts, self._loop.create_future(), client)
        with self._changed:
            self._prune()
            self._jobs.append(job)
            self._changed.notify()
        return job

    def _prune(self) -> None:
        """With the lock held: remove ended jobs."""
        self._jobs = deque(job for job in self._jobs if not job.is_gone and job.n_left)

    # On the embedder's thread.

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (batch := self._take()) and not self._is_stopping:
                    self._changed.wait()
                if self._is_stopping:
                    return
            done = self._compute(batch)
            with self._changed:
                self._prune()  # before the result is delivered: an answered request no longer counts
            if done and self._loop is not None:
                try:
                    self._loop.call_soon_threadsafe(self._settle, done)
                except RuntimeError:
                    return  # the event loop has ended

    def _take(self) -> list[tuple[Job, int]]:
        """The next texts, as many as one batch holds: in order, but clients take turns from batch to batch. A text
        longer than a batch goes alone."""
        self._prune()
        self._served = {job.client: self._served.get(job.client, 0) for job in self._jobs}
        batch = self._fill(sorted(self._jobs, key=lambda job: self._served[job.client]))
        n_batch = max(self._served.values(), default=0) + 1
        self._served |= {job.client: n_batch for job, _ in batch}
        return batch

    def _fill(self, jobs: list[Job]) -> list[tuple[Job, int]]:
        batch: list[tuple[Job, int]] = []
        n_tokens = 0
        for job in jobs:
            while job.n_taken < len(job.texts):
                n_more = len(job.texts[job.n_taken]) // 4
                is_full = n_tokens + n_more > self._computer.n_pack or len(batch) >= self._computer.n_seq_max
                if batch and is_full:
                    return batch
                batch.append((job, job.n_taken))
                job.n_taken += 1
                n_tokens += n_more
        return batch

    def _compute(self, batch: list[tuple[Job, int]]) -> list[tuple[Job, Exception | None]]:
        """Compute the rows and deliver them. Returns the jobs that ended."""
        texts = [job.texts[i] for job, i in batch]
        t_start = time.monotonic()
        try:
            found = self._computer.compute(texts)
        except Exception as error:
            if isinstance(error, ComputeFailed):
                log.error("a batch of %d texts failed: llama.cpp returned %d", len(batch), error.code)
            else:
                log.exception("a batch of %d texts failed", len(batch))
            self.counts.n_failures += 1
            jobs = dict.fromkeys(job for job, _ in batch)
            for job in jobs:
                job.n_left, job.is_gone = 0, True
            return [(job, error) for job in jobs]
        counts = self.counts
        counts.seconds += time.monotonic() - t_start
        counts.n_batches += 1
        counts.n_texts += len(batch)
        counts.n_tokens += sum(map(len, texts)) // 4
        done: list[tuple[Job, Exception | None]] = []
        for (job, i), rows in zip(batch, found, strict=True):
            job.rows[i] = rows
            job.n_left -= 1
            if not job.n_left:
                done.append((job, None))
        return done

    # On the event loop again.

    def _settle(self, done: list[tuple[Job, Exception | None]]) -> None:
        for job, error in done:
            if job.future.done():  # its client has disconnected meanwhile
                continue
            if error is not None:
                job.future.set_exception(error)
            else:
                job.future.set_result([rows for rows in job.rows if rows is not None])
