"""Blobs in arenas: an engine that has one arena's descriptor reaches nothing of another's."""

from __future__ import annotations

import gc
import mmap
import os

from llamad.protocol.blobs import Arena, Blob

PAGE = 65536


def filled(arena: Arena | None, byte: int) -> Blob:
    blob = Blob(PAGE, arena)
    blob.size = PAGE
    memoryview(blob)[:] = bytes([byte]) * PAGE
    return blob


def seen_by_engine(arena: Arena, number: int) -> bytes:
    """What an engine of this arena finds under a blob's number."""
    with mmap.mmap(arena.fd, PAGE, offset=number) as pages:
        return pages[:]


def test_an_engine_maps_only_blobs_of_its_own_arena():
    one, two = Arena(), Arena()
    blobs = [filled(one, 1), filled(two, 2), filled(None, 3)]
    assert len({blob.id for blob in blobs}) == 3
    assert seen_by_engine(one, blobs[0].id) == b"\1" * PAGE
    assert seen_by_engine(two, blobs[1].id) == b"\2" * PAGE
    for arena, blob in ((one, blobs[1]), (two, blobs[0]), (one, blobs[2]), (two, blobs[2])):
        assert seen_by_engine(arena, blob.id) == bytes(PAGE)


def test_the_pages_of_a_closed_blob_leave_its_arena():
    arena = Arena()
    blob = filled(arena, 7)
    number, n_before = blob.id, os.fstat(arena.fd).st_blocks
    del blob
    gc.collect()
    assert os.fstat(arena.fd).st_blocks < n_before
    assert seen_by_engine(arena, number) == bytes(PAGE)


def test_a_large_blob_may_outlive_every_other_reference_to_its_arena():
    """Its pages are given back by a thread, which must not meet another file under the arena's number."""
    arena = Arena()
    blob = Blob(16 << 20, arena)
    fd = arena.fd
    del arena
    os.fstat(fd)  # the blob keeps it open
    del blob
    gc.collect()
    other = Arena()
    kept = filled(other, 9)
    assert seen_by_engine(other, kept.id) == b"\x09" * PAGE
