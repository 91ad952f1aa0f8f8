"""Embeddings that an engine maps for prompts: each blob once, until the last prompt with it is gone, in any thread."""

from __future__ import annotations

import asyncio
import threading

import pytest

from llamad.client.media_embeddings import Lending, MediaEmbeddings
from llamad.protocol.blobs import Blob


class Mapped:
    """An engine that remembers what it has mapped, and in which thread it was told so."""

    def __init__(self) -> None:
        self.blobs: list[int] = []
        self.n_lent = 0
        self.threads: set[int] = set()

    async def lend(self, blob: Blob) -> bool:
        self.n_lent += 1
        self.blobs.append(blob.id)
        return True

    def give_back(self, blob: Blob) -> None:
        self.threads.add(threading.get_ident())
        self.blobs.remove(blob.id)


def in_thread(held: list[MediaEmbeddings]) -> None:
    """Drop the last references in another thread, as the garbage collector may."""
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()


def test_the_event_loop_gives_back_what_another_thread_drops() -> None:
    """Counts and the socket were changed by the thread itself, while the event loop used them."""

    async def run() -> None:
        engine, blob = Mapped(), Blob(64)
        lending = Lending(engine)
        held = [await lending.lend(b"", [blob])]
        in_thread(held)
        assert engine.blobs == [blob.id]  # not before it is the event loop's turn
        await asyncio.sleep(0)
        assert engine.blobs == []
        assert engine.threads == {threading.get_ident()}

    asyncio.run(run())


def test_a_blob_is_mapped_once_until_its_last_prompt_has_gone() -> None:
    async def run() -> None:
        engine, blob, other = Mapped(), Blob(64), Blob(64)
        lending = Lending(engine)
        first, second = [await lending.lend(b"", [blob])], [await lending.lend(b"", [blob, other])]
        assert engine.n_lent == 2
        first.clear()
        await asyncio.sleep(0)
        assert engine.blobs == [blob.id, other.id]
        second.clear()  # another prompt comes before the event loop has heard of this one's end
        third = [await lending.lend(b"", [blob])]
        await asyncio.sleep(0)
        assert (engine.blobs, engine.n_lent) == ([blob.id], 2)
        third.clear()
        await asyncio.sleep(0)
        assert engine.blobs == []

    asyncio.run(run())


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_rows_may_outlive_the_event_loop() -> None:
    engine, blob = Mapped(), Blob(64)

    async def run() -> list[MediaEmbeddings]:
        return [await Lending(engine).lend(b"", [blob])]

    held = asyncio.run(run())
    held.clear()
    assert engine.blobs == [blob.id]
