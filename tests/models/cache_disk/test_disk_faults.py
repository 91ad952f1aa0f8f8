"""Faults of the disk and of single files, which cost no more than what they concern."""

import errno
import gc
import os
import weakref

import pytest
from support.states.disk_cache import KEYS, Disk, again
from support.states.fake_cache_memory import FakeMemory, packed, tokens_of

from llamad.models.cache_disk import faults
from llamad.models.cache_disk.row_file import RowFile
from llamad.models.cache_disk.source import Source
from llamad.models.cache_disk.turn_files import Answer

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


@pytest.mark.parametrize(("n_files", "n_lines"), [(2, 2), (40, 1)])
@pytest.mark.parametrize("number", [errno.EACCES, errno.EUCLEAN])
def test_files_that_cannot_be_opened_are_ignored(disk, monkeypatch, caplog, number, n_files, n_lines):
    """A file of another user was named in the log every ten seconds. One damaged inode kept the daemon from ever
    completing its look at the folder, so that it wrote nothing."""
    for i in range(n_files):
        disk.memory.put(tokens_of(i, 256))
    disk.cache.turns.keep(answer(disk))
    disk.step()
    names = {file.name for file in disk.files()}
    monkeypatch.setattr(os, "open", fails_for(lambda path: str(path) in names, number, os.open))
    other = again(disk)
    other.memory.put(TOKENS)
    for _ in range(3):
        other.step()
    lines = [one.message for one in caplog.records if "ignored" in one.message]
    assert len(lines) == n_lines, lines
    assert all(os.strerror(number) in line for line in lines)
    assert (len(other.cache.index), other.cache.write_faults.n_total) == (4, 0)
    assert {file.name for file in disk.files()} > names


def test_answers_that_cannot_be_opened_are_ignored_with_one_line(disk, monkeypatch, caplog):
    for i in range(9):
        disk.cache.turns.keep(answer(disk, i))
    disk.step()
    monkeypatch.setattr(os, "open", fails_for(lambda path: str(path).endswith(".turn"), errno.EIO, os.open))
    other = again(disk)
    other.step()
    assert caplog.text.count("9 files of the cache on disk are ignored") == 1
    assert other.cache.write_faults.n_total == 0


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM])
def test_a_process_without_descriptors_ignores_no_files(disk, monkeypatch, caplog, number):
    """That is no fault of the files, which are read when there are descriptors again."""
    disk.memory.put(TOKENS)
    disk.step()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", fails_for(lambda path: str(path).endswith(".block"), number, os.open))
        other = again(disk)
    assert other.cache.write_faults.n_total == 1
    other.cache.write_faults.worked()
    other.step()
    assert len(other.cache.index) == 4
    assert "ignored" not in caplog.text


def test_no_file_is_ignored_if_the_folder_cannot_be_read(disk, monkeypatch):
    """It failed while its files were being opened. They are found when it works again."""
    disk.memory.put(TOKENS)
    disk.step()
    n_lists, listdir = 0, os.listdir

    def fail_later(path):
        nonlocal n_lists
        n_lists += 1
        if n_lists > 3:  # those of a sweep, and that of the refresh
            raise OSError(errno.EIO, "Input/output error")
        return listdir(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", fail_later)
        patch.setattr(os, "open", fails_for(lambda path: str(path).endswith(".block"), errno.EIO, os.open))
        other = again(disk)
    assert (n_lists, other.cache.write_faults.n_total) == (4, 1)
    other.cache.write_faults.worked()
    other.step()
    assert len(other.cache.index) == 4


@pytest.fixture
def bad_sector(disk, monkeypatch):
    """Another daemon whose files have a bad sector in the first block of TOKENS, and the file with it."""
    disk.memory.put(TOKENS)
    disk.step()
    monkeypatch.setattr(faults, "PAUSE_SECONDS_MIN", 0.0)
    other = again(disk)
    bad = other.find(TOKENS).found.blocks[0].name
    read_into = RowFile.read_into

    def fail(self, *more):
        if self.description.name == bad:
            raise OSError(errno.EIO, "Input/output error")
        return read_into(self, *more)

    monkeypatch.setattr(RowFile, "read_into", fail)
    return other, disk.path / bad


def test_a_bad_sector_costs_the_file_and_not_the_cache(bad_sector, caplog):
    """The file stayed in the index. Each prompt that began with this block paused reading for all models, in the end
    for five minutes."""
    other, file = bad_sector
    assert other.fetch(TOKENS) is None
    assert (file.exists(), other.cache.read_faults.n_total) == (True, 1)  # it may be the disk
    assert other.fetch(TOKENS) is None
    assert (file.exists(), other.cache.read_faults.n_total) == (False, 1)
    assert f"the entry {file.name} of the cache on disk is removed: Input/output error" in caplog.text
    assert other.find(TOKENS) is None


def test_a_bad_file_that_cannot_be_removed_is_ignored(bad_sector, monkeypatch, caplog):
    other, file = bad_sector
    monkeypatch.setattr(other.cache.folder, "remove", fails(errno.EIO))
    for _ in range(2):
        assert other.fetch(TOKENS) is None
    with other.cache.folder.opened() as folder:
        assert other.cache.writer._rows.refresh(folder) == []
    assert file.exists()
    assert file.name not in other.cache.index
    assert f"the entry {file.name} of the cache on disk is ignored: Input/output error" in caplog.text


def test_files_stay_if_the_whole_disk_cannot_be_read(bad_sector, monkeypatch):
    other, file = bad_sector
    for _ in range(5):
        with monkeypatch.context() as patch:
            patch.setattr(os, "listdir", fails(errno.EIO))
            assert other.fetch(TOKENS) is None
    assert file.name in other.cache.index
    assert other.cache.read_faults.n_total == 5


def test_a_file_that_can_be_read_again_is_not_suspected_any_more(disk, monkeypatch):
    """Two faults of a disk that works in between remove nothing."""
    disk.memory.put(TOKENS)
    disk.step()
    monkeypatch.setattr(faults, "PAUSE_SECONDS_MIN", 0.0)
    other = again(disk)
    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(RowFile, "read_into", fails(errno.EIO))
            assert other.fetch(TOKENS) is None
        assert other.fetch(TOKENS) is not None
    assert len(disk.files()) == 4


def answer(disk: Disk, i: int = 0) -> Answer:
    return Answer(disk.cache.folder.salt_id, "", (bytes([i]) * 16,), packed([1, 2, i]), b"")


def fails_for(is_bad, number: int, real):
    """Return a function like `real` that raises this error for some paths."""

    def fail(path, *more, **named):
        if is_bad(path):
            raise OSError(number, os.strerror(number))
        return real(path, *more, **named)

    return fail


def fails(number: int):
    """Return a function that raises this error."""

    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    return fail
