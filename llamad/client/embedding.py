"""Owns what the front knows of an engine's embedder: texts in, rows out. Event loop only; computes nothing."""

from __future__ import annotations

import asyncio
from typing import Protocol

from llamad.protocol.model_info import Rows, VectorCounts, VectorInfo


class EmbeddingJob(Protocol):
    """Texts that wait for their rows, or have them."""

    @property
    def future(self) -> asyncio.Future[list[Rows]]: ...
    def abort(self) -> None:
        """Nobody waits any more. Does nothing to a job that has ended."""


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
    def submit(self, texts: list[bytes]) -> EmbeddingJob: ...
