"""Owns the interface of an engine's embedder: texts in, rows out. Event loop only; computes nothing."""

from __future__ import annotations

import asyncio
from typing import Protocol

from llamad.protocol.model_info import Rows, VectorCounts, VectorInfo


class EmbeddingJob(Protocol):
    """The texts of one request; `future` gives their rows."""

    @property
    def future(self) -> asyncio.Future[list[Rows]]: ...
    def abort(self) -> None:
        """The result is no longer needed. Does nothing to a job that has ended."""


class Embedder(Protocol):
    @property
    def info(self) -> VectorInfo: ...
    @property
    def counts(self) -> VectorCounts: ...
    @property
    def n_jobs(self) -> int: ...
    @property
    def n_texts_waiting(self) -> int: ...
    def can_accept(self) -> bool: ...
    def has_share(self, client: int) -> bool: ...
    def submit(self, texts: list[bytes], client: int = 0) -> EmbeddingJob: ...
