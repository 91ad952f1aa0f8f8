"""Owns the queue of texts to embed: packs them into batches, sends one at a time to the engine, hands out the rows.

Event loop only; computes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from llamad.base.fair_count import share_of
from llamad.client.adapters import Use
from llamad.client.control import Asking
from llamad.client.media_embeddings import MediaEmbeddings
from llamad.protocol.blobs import Arena, Blob
from llamad.protocol.control_messages import MediaRun
from llamad.protocol.errors import ComputeFailed, EngineEnded, Stopped
from llamad.protocol.model_info import Embeddings, VectorCounts, VectorInfo
from llamad.tokenizer.vocab import Vocab

log = logging.getLogger("llamad.engine")


class TextMedia(msgspec.Struct, frozen=True, eq=False):
    """Images and sound of a text: where they stand, and the memory with them, as lent to the engine."""

    runs: list[MediaRun]
    lent: MediaEmbeddings


class Job:
    """All texts of one request; `media` has the files of some, by their index. `future` gives the rows of each, in
    order."""

    __slots__ = (
        "adapters",
        "client",
        "future",
        "is_gone",
        "media",
        "n_left",
        "n_taken",
        "rows",
        "texts",
        "uses",
    )

    def __init__(
        self,
        texts: list[bytes],
        future: asyncio.Future[list[Embeddings]],
        client: int,
        media: Mapping[int, TextMedia],
        uses: Sequence[Use],
    ) -> None:
        self.client = client
        self.uses = uses  # keeps the adapters open
        self.adapters = [(use.info.id, use.scale) for use in uses]
        self.texts = texts
        self.media = media
        self.future = future
        self.rows: list[Embeddings | None] = [None] * len(texts)
        self.n_taken = 0  # texts computed or being computed
        self.n_left = len(texts)
        self.is_gone = False

    def abort(self) -> None:
        """The client has disconnected, or its deadline has passed: texts not started are dropped. Does nothing to a job
        that has ended."""
        self.is_gone = True
        self.future.cancel()

    def fail(self, error: Exception) -> None:
        self.n_left, self.is_gone = 0, True
        if not self.future.done():
            self.future.set_exception(error)


class Embedder:
    """`n_jobs` counts requests waiting or being computed."""

    def __init__(
        self, info: VectorInfo, *, jobs_max: int, n_pack: int, n_texts_max: int, arena: Arena | None = None
    ) -> None:
        self.info = info
        self._arena = arena  # where engines map the texts and vectors of a batch
        self.jobs_max = jobs_max
        self.counts = VectorCounts()
        self.n_pack = n_pack  # tokens and texts of one batch
        self._n_texts_max = n_texts_max
        self._jobs: deque[Job] = deque()
        self._served: dict[int, int] = {}  # clients with jobs: the batch that last had texts of theirs
        self._asking: Asking | None = None  # while an engine is connected
        self._vocab: Vocab | None = None  # that it takes tokens of
        self._running: asyncio.Task[None] | None = None
        self._t_sent = 0.0  # when the batch that is being computed was sent; 0: none is

    def connect(self, asking: Asking, vocab: Vocab | None = None) -> None:
        self._asking, self._vocab = asking, vocab
        self._begin()

    def disconnect(self, error: Exception | None = None) -> None:
        """The engine has ended: all requests fail."""
        self._asking = None
        jobs, self._jobs = list(self._jobs), deque()
        for job in jobs:
            job.fail(error or EngineEnded())

    def close(self) -> None:
        self.disconnect(Stopped())
        if self._running is not None:
            self._running.cancel()

    @property
    def n_jobs(self) -> int:
        return len(self._jobs)

    @property
    def n_texts_waiting(self) -> int:
        return sum(len(job.texts) - job.n_taken for job in self._jobs if not job.is_gone)

    def silent_seconds(self) -> float:
        """How long the batch at the engine has been there."""
        return time.monotonic() - self._t_sent if self._t_sent else 0.0

    def can_accept(self) -> bool:
        """Whether the queue has room for one more request."""
        return len(self._jobs) < self.jobs_max or any(job.is_gone for job in self._jobs)

    def has_share(self, client: int) -> bool:
        """Whether one more request of this client leaves room for others."""
        return sum(job.client == client for job in self._jobs) < share_of(self.jobs_max)

    def submit(
        self,
        texts: list[bytes],
        client: int = 0,
        media: Mapping[int, TextMedia] | None = None,
        adapters: Sequence[Use] = (),
        vocab: Vocab | None = None,
    ) -> Job:
        """Queue the texts of a request, each int32 token ids of `vocab` and not longer than info.n_text_max; with
        images or sound, than info.n_mixed_max. Raises EngineEnded if there is no engine, or if the texts were prepared
        for another one."""
        media = media or {}
        is_stale = vocab is not self._vocab or any(
            one.lent.lending.asking is not self._asking for one in media.values()
        )
        if self._asking is None or is_stale:
            raise EngineEnded
        job = Job(texts, asyncio.get_running_loop().create_future(), client, media, adapters)
        self._prune()
        self._jobs.append(job)
        self._begin()
        return job

    def _prune(self) -> None:
        """Remove ended jobs."""
        self._jobs = deque(job for job in self._jobs if not job.is_gone and job.n_left)

    def _begin(self) -> None:
        if self._running is None and self._jobs and self._asking is not None:
            self._running = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        """Batch after batch, until nothing waits."""
        try:
            # What the same iteration of the loop brings goes together.
            await asyncio.sleep(0)
            while self._asking is not None and (batch := self._take()):
                await self._compute(self._asking, batch)
        finally:
            self._running, self._t_sent = None, 0.0
        self._begin()

    def _take(self) -> list[tuple[Job, int]]:
        """The next texts, as many as one batch holds: in order, but clients take turns from batch to batch. A text
        longer than a batch goes alone, and so does one with images or sound."""
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
            if batch and job.adapters != batch[0][0].adapters:
                continue  # they are computed together
            while job.n_taken < len(job.texts):
                n_more = len(job.texts[job.n_taken]) // 4
                is_alone = job.n_taken in job.media
                is_full = n_tokens + n_more > self.n_pack or len(batch) >= self._n_texts_max
                if batch and (is_full or is_alone):
                    return batch
                batch.append((job, job.n_taken))
                job.n_taken += 1
                n_tokens += n_more
                if is_alone:
                    return batch
        return batch

    async def _compute(self, asking: Asking, batch: list[tuple[Job, int]]) -> None:
        """Have the rows computed and deliver them. The batch keeps what its jobs have lent until it is answered."""
        texts = [job.texts[i] for job, i in batch]
        lengths = [len(text) // 4 for text in texts]
        n_rows = sum(lengths) if self.info.pooling == "none" else len(texts)
        try:
            blob = Blob(4 * (sum(lengths) + n_rows * self.info.n_out), self._arena)
            blob.size = blob.capacity
            memoryview(blob)[: 4 * sum(lengths)] = b"".join(texts)
            self._t_sent = time.monotonic()
            runs = [run for job, i in batch if i in job.media for run in job.media[i].runs]
            answer = await asking.embed(blob, lengths, runs, batch[0][0].adapters)
        except EngineEnded as error:
            self._fail(batch, error)
            return
        except Exception:
            log.exception("a batch of %d texts cannot be sent", len(batch))
            self._fail(batch, ComputeFailed(-1))
            return
        finally:
            self._t_sent = 0.0
        if answer.code != 0:
            self._fail(batch, ComputeFailed(answer.code))
            return
        counts = self.counts
        counts.seconds += answer.seconds
        counts.n_batches += 1
        counts.n_texts += len(batch)
        counts.n_tokens += sum(lengths)
        self._deliver(batch, self._rows(blob, lengths, n_rows))

    def _rows(self, blob: Blob, lengths: list[int], n_rows: int) -> list[Embeddings]:
        """Of each text, in the blob's memory."""
        import numpy as np

        rows = np.frombuffer(memoryview(blob), np.float32, offset=4 * sum(lengths)).reshape(
            n_rows, self.info.n_out
        )
        if self.info.pooling != "none":
            return [rows[i : i + 1] for i in range(n_rows)]
        return np.split(rows, np.cumsum(lengths)[:-1])

    def _deliver(self, batch: list[tuple[Job, int]], found: list[Embeddings]) -> None:
        done = []
        for (job, i), rows in zip(batch, found, strict=True):
            job.rows[i] = rows
            job.n_left -= 1
            if job.n_left == 0:
                done.append(job)
        self._prune()  # before the result is delivered: an answered request no longer counts
        for job in done:
            if not job.future.done():  # else its client has disconnected meanwhile
                job.future.set_result([rows for rows in job.rows if rows is not None])

    def _fail(self, batch: list[tuple[Job, int]], error: Exception) -> None:
        self.counts.n_failures += 1
        for job in dict.fromkeys(job for job, _ in batch):
            job.fail(error)
        self._prune()
