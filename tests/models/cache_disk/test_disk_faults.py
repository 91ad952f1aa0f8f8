"""Faults of the disk and of single files, which cost no more than what they concern."""

import errno
import gc
import os
import weakref

import pytest
from support.states.disk_cache import KEYS
from support.states.fake_cache_memory import FakeMemory, tokens_of

from llamad.models.cache_disk import faults
from llamad.models.cache_disk.source import Source

TOKENS = tokens_of(1, 1000)


@pytest.mark.parametrize("pause_seconds", [0.0, 60.0])
def test_models_that_leave_while_the_disk_is_full_take_no_memory(disk, monkeypatch, pause_seconds):
    """Each reload with other settings left a cache memory behind, as long as the disk was full. Those of models that
    stay are written later."""
    monkeypatch.setattr(faults, "PAUSE_SECONDS_MIN", pause_seconds)
    monkeypatch.setattr(disk.cache.folder, "write", fails(errno.ENOSPC))
    disk.memory.put(TOKENS)
    disk.step()
    memories = []
    for i in range(3):
        memory = FakeMemory(f"model {i}")
        memory.put(tokens_of(i, 600))
        source = Source(memory, "build", lambda: "tiny", KEYS.get, lambda: 0.0, n_slots=1)
        source.layout = disk.target.layout
        disk.cache.writer.add(source)
        disk.step()
        disk.cache.writer.remove(source)
        disk.step()
        memories.append(weakref.ref(memory))
        del memory, source
    gc.collect()
    assert [one() for one in memories] == [None] * 3
    monkeypatch.undo()
    disk.cache.write_faults.worked()
    disk.step()
    assert len(disk.files()) == 4


def fails(number: int):
    """Return a function that raises this error."""

    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    return fail
