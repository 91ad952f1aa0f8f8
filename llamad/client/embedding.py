"""The queue of texts to embed: packs them into batches, sends the engine one at a time, and delivers the embeddings.

Event loop only; computes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

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

# EngineClient.lend_rows()
Lend: TypeAlias = Callable[[bytes, list[Blob]], Awaitable[MediaEmbeddings]]


class TextMedia(msgspec.Struct, frozen=True, eq=False):
    """Images and sound of a text: their positions, and the memory with their embeddings, which the engine maps."""

    runs: list[MediaRun]
    lent: MediaEmbeddings


class Job:
    """All texts of one request. `media` has the images and sound of texts by the index of the text. The result of
    `future` is the embeddings of each text, in order."""

    __slots__ = (
        "adapters",
        "client",
        "future",
        "is_gone",
        "media",
        "n_crashes",
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
        self.media = dict(media)
        self.future = future
        self.n_crashes = 0  # engines that ended while they computed one of its texts
        self.rows: list[Embeddings | None] = [None] * len(texts)
        self.n_taken = 0  # texts computed or being computed
        self.n_left = len(texts)
        self.is_gone = False

    def abort(self) -> None:
        """Drop the texts that have not been started, because the client has disconnected or its deadline has passed.
        Does nothing to a job that has ended."""
        self.is_gone = True
        self.future.cancel()

    def take_back(self, i: int) -> None:
        """Let text i, and all after it, be computed again, because the engine that computed it has ended."""
        self.n_taken = min(self.n_taken, i)

    def fail(self, error: Exception) -> None:
        self.n_left, self.is_gone = 0, True
        if not self.future.done():
            self.future.set_exception(error)


class Embedder:
    """`n_jobs` counts requests waiting or being computed. If the engine ends, they wait for the next one; a request is
    computed again after `resume_max` engines that ended while they computed it, at most. `on_went_on` is called when an
    engine has computed a text of a request that an earlier one was computing when it ended."""

    def __init__(
        self,
        info: VectorInfo,
        *,
        jobs_max: int,
        n_pack: int,
        n_texts_max: int,
        arena: Arena | None = None,
        resume_max: int = 0,
        on_went_on: Callable[[], None] | None = None,
    ) -> None:
        self.info = info
        self.resume_max = resume_max
        self._on_went_on = on_went_on
        self._arena = arena  # the memory for the texts and embeddings of a batch, which engines map
        self.jobs_max = jobs_max
        self.counts = VectorCounts()
        self.n_pack = n_pack  # maximum tokens of one batch
        self._n_texts_max = n_texts_max
        self._jobs: deque[Job] = deque()
        self._served: dict[
            int, int
        ] = {}  # for each client with jobs: the number of the last batch with its texts
        self._asking: Asking | None = None  # the connected engine
        self._vocab: Vocab | None = None  # the vocabulary of this engine
        self._lend: Lend | None = None
        self._batch: list[tuple[Job, int]] = []  # the texts that are being computed
        self._running: asyncio.Task[None] | None = None
        self._t_sent = 0.0  # when the batch that is being computed was sent; 0: none is

    def connect(self, asking: Asking, vocab: Vocab | None = None, lend: Lend | None = None) -> None:
        """Use this engine from now on. `lend` maps the embeddings of images and sound in it."""
        if vocab is not self._vocab:
            self.fail_orphans(EngineEnded())
        self._asking, self._vocab, self._lend = asking, vocab, lend
        self._begin()

    def disconnect(self, error: Exception | None = None) -> None:
        """The engine has ended. With `error`, all requests fail; without it, those that another engine may not compute
        again."""
        if error is None:
            self._lose_engine()
            return
        self._asking, self._batch = None, []
        self.fail_orphans(error)

    def fail_orphans(self, error: Exception) -> None:
        """Fail the requests that wait for another engine, because none comes."""
        if self._asking is None:
            jobs, self._jobs = list(self._jobs), deque()
            for job in jobs:
                job.fail(error)

    def _lose_engine(self) -> None:
        """Take back the texts that the engine computed when it ended."""
        self._asking = None
        batch, self._batch = self._batch, []
        for job in dict.fromkeys(job for job, _ in batch):
            job.n_crashes += 1
            if job.n_crashes > self.resume_max:
                job.fail(EngineEnded())
        for job, i in batch:
            job.take_back(i)
        if batch:
            self.counts.n_failures += 1
        if not self.resume_max:
            self.fail_orphans(EngineEnded())
        self._prune()

    def close(self) -> None:
        self.disconnect(Stopped())
        if self._running is not None:
            self._running.cancel()

    @property
    def n_jobs(self) -> int:
        return len(self._jobs)

    @property
    def is_idle(self) -> bool:
        """Whether no text waits or is being computed."""
        return not self._jobs and self._running is None

    @property
    def n_texts_waiting(self) -> int:
        return sum(len(job.texts) - job.n_taken for job in self._jobs if not job.is_gone)

    def silent_seconds(self) -> float:
        """Return how long the engine has been computing the current batch; 0 if there is none."""
        return time.monotonic() - self._t_sent if self._t_sent else 0.0

    def can_accept(self) -> bool:
        """Return whether the queue has room for one more request."""
        return len(self._jobs) < self.jobs_max or any(job.is_gone for job in self._jobs)

    def has_share(self, client: int) -> bool:
        """Return whether one more request of this client leaves room for other clients."""
        return sum(job.client == client for job in self._jobs) < share_of(self.jobs_max)

    def submit(
        self,
        texts: list[bytes],
        client: int = 0,
        media: Mapping[int, TextMedia] | None = None,
        adapters: Sequence[Use] = (),
        vocab: Vocab | None = None,
    ) -> Job:
        """Queue the texts of a request. Each text is int32 token ids of `vocab`, at most info.n_text_max of them, or
        info.n_mixed_max in a text with images or sound. Raises EngineEnded if there is no engine, or if the texts were
        prepared for another engine."""
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
        """Compute one batch after the other until no text waits."""
        try:
            # Texts that arrive in the same iteration of the event loop share a batch.
            await asyncio.sleep(0)
            while self._asking is not None and (batch := self._take()):
                await self._compute(self._asking, batch)
        finally:
            self._running, self._t_sent = None, 0.0
        self._begin()

    def _take(self) -> list[tuple[Job, int]]:
        """Return the texts of the next batch, in the order of arrival, but clients take turns from batch to batch. A
        text that is longer than a batch gets a batch of its own, and so does a text with images or sound."""
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
                continue  # a batch has one set of adapters
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
        """Send a batch to the engine and deliver its embeddings. The batch keeps the memory that its jobs have lent
        until the engine replies."""
        self._batch = batch
        texts = [job.texts[i] for job, i in batch]
        lengths = [len(text) // 4 for text in texts]
        n_rows = sum(lengths) if self.info.pooling == "none" else len(texts)
        try:
            blob = Blob(4 * (sum(lengths) + n_rows * self.info.n_out), self._arena)
            blob.size = blob.capacity
            memoryview(blob)[: 4 * sum(lengths)] = b"".join(texts)
            await self._lend_again(asking, batch)
            self._t_sent = time.monotonic()
            runs = [run for job, i in batch if i in job.media for run in job.media[i].runs]
            reply = await asking.embed(blob, lengths, runs, batch[0][0].adapters)
        except EngineEnded:
            if self._asking is asking:
                self._lose_engine()
            return
        except Exception:
            log.exception("a batch of %d texts cannot be sent", len(batch))
            self._fail(batch, ComputeFailed(-1))
            return
        finally:
            self._t_sent = 0.0
        if self._asking is not asking:
            return  # the engine was given up, and its texts were taken back
        if reply.code != 0:
            self._fail(batch, ComputeFailed(reply.code))
            return
        counts = self.counts
        counts.seconds += reply.seconds
        counts.n_batches += 1
        counts.n_texts += len(batch)
        counts.n_tokens += sum(lengths)
        self._batch = []
        self._deliver(batch, self._rows(blob, lengths, n_rows))

    async def _lend_again(self, asking: Asking, batch: list[tuple[Job, int]]) -> None:
        """Map the embeddings of images and sound that were mapped in an engine that has ended."""
        for job, i in batch:
            media = job.media.get(i)
            if media is not None and media.lent.lending.asking is not asking:
                if self._lend is None:
                    raise EngineEnded
                lent = await self._lend(media.lent.packed, list(media.lent.blobs))
                job.media[i] = TextMedia(media.runs, lent)

    def _rows(self, blob: Blob, lengths: list[int], n_rows: int) -> list[Embeddings]:
        """Return the embeddings of each text as views of the blob's memory."""
        import numpy as np

        rows = np.frombuffer(memoryview(blob), np.float32, offset=4 * sum(lengths)).reshape(
            n_rows, self.info.n_out
        )
        if self.info.pooling != "none":
            return [rows[i : i + 1] for i in range(n_rows)]
        return np.split(rows, np.cumsum(lengths)[:-1])

    def _deliver(self, batch: list[tuple[Job, int]], embeddings: list[Embeddings]) -> None:
        if self._on_went_on is not None and any(job.n_crashes for job, _ in batch):
            self._on_went_on()
        done = []
        for (job, i), rows in zip(batch, embeddings, strict=True):
            job.rows[i] = rows
            job.n_left -= 1
            if job.n_left == 0:
                done.append(job)
        self._prune()  # before the results are delivered, so that finished requests no longer count
        for job in done:
            if not job.future.done():  # a client may have disconnected meanwhile
                job.future.set_result([rows for rows in job.rows if rows is not None])

    def _fail(self, batch: list[tuple[Job, int]], error: Exception) -> None:
        self._batch = []
        self.counts.n_failures += 1
        for job in dict.fromkeys(job for job, _ in batch):
            job.fail(error)
        self._prune()
