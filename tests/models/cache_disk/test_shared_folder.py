"""One folder that several daemons use, or that is another one than at the start: nobody removes what others can use."""

import os
import shutil
import time

from support.states.disk_cache import Disk
from support.states.fake_cache_memory import ses1, tokens_of

from llamad.base.atomic_file import PREFIX
from llamad.models.cache_disk import turn_files
from llamad.models.cache_disk.folder import Folder
from llamad.models.cache_disk.turn_files import Answer

SYSTEM = tokens_of(1, 1024)


def test_two_daemons_that_write_the_same_block_at_once_both_read_it(tmp_path):
    """Each wrote the blocks of a common system prompt before it had seen those of the other. The second one's had
    another description, and the first one took them for broken ones and removed them, and so everything behind them."""
    first, second = Disk(tmp_path), Disk(tmp_path)
    for disk in (first, second):
        disk.cache.writer.step()
    prompts = [SYSTEM + tokens_of(10 + i, 600) for i in range(4)]
    ids = [first.memory.put(prompts[0])]
    first.cache.writer.step()  # neither looks at the folder again
    time.sleep(0.01)
    for prompt in prompts[1:]:
        second.memory.put(prompt, session=7)
    second.cache.writer.step()
    first.memory.drop(ids[0])
    first.cache.writer.step()
    assert bytes(first.fetch([*prompts[0], 1, 2]).blob) == ses1(prompts[0])
    for _ in range(3):
        first.step()
        second.step()
    assert (first.cache.counts.n_broken, second.cache.counts.n_broken) == (0, 0)
    for disk in (first, second):
        assert disk.cache.n_entries == 4
        assert all(disk.has([*prompt, 1]) for prompt in prompts)


def answer(disk: Disk, number: int) -> Answer:
    return Answer(disk.cache.folder.salt_id, "", (bytes([number]) * 16,), b"\1\0\0\0" * 300, b"data")


def test_what_a_file_system_has_that_is_mounted_after_the_start_stays(tmp_path, caplog):
    """The daemon had made a salt in the empty mount point, and removed all files of the file system, whose names
    another salt had made."""
    folder, away = tmp_path / "prompts", tmp_path / "away"
    folder.mkdir()
    before = Disk(folder)
    before.memory.put(SYSTEM)
    before.cache.turns.keep(answer(before, 1))
    before.step()
    n_files = len(before.files())
    folder.rename(away)
    folder.mkdir()
    disk = Disk(folder)  # it starts before the file system is mounted
    disk.memory.put(tokens_of(2, 600))
    disk.cache.turns.keep(answer(disk, 2))
    disk.step()
    shutil.rmtree(folder)
    away.rename(folder)
    disk.step()
    assert caplog.text.count("it is another folder than before") == 1
    assert disk.cache.counts.n_broken == 0
    assert bytes(disk.fetch([*SYSTEM, 1, 2]).blob) == ses1(SYSTEM)
    assert len(disk.files()) == n_files + 3  # what is in memory was written there, too
    assert len(list(disk.path.glob("*" + turn_files.ENDING))) == 1
    assert len(disk.cache.turns.find(bytes([1]) * 16)) == 1
    assert not disk.cache.turns.find(bytes([2]) * 16)  # its names are those of the other salt
    disk.step()
    assert caplog.text.count("it is another folder than before") == 1


def test_daemons_that_find_the_folder_empty_agree_on_a_salt(tmp_path):
    """One is running and has not written since, the other one starts. Each removed the files of the other."""
    running = Disk(tmp_path)
    running.memory.put(SYSTEM)
    running.step()
    shutil.rmtree(running.path)
    started = Disk(tmp_path)
    started.memory.put(tokens_of(2, 600))
    for _ in range(3):
        started.step()
        running.step()
    assert running.cache.folder.salt == started.cache.folder.salt
    assert (running.cache.counts.n_broken, started.cache.counts.n_broken) == (0, 0)
    for disk in (running, started):
        assert disk.has([*SYSTEM, 1])
        assert disk.has([*tokens_of(2, 600), 1])


def test_a_sweep_of_another_daemon_does_not_disturb_a_start(tmp_path, monkeypatch):
    """The start makes a file to see whether it can. It closed the file, which another daemon then took for a leftover,
    and ended with "No such file or directory" when it removed it."""
    Folder(str(tmp_path)).prepare()
    other, close = Folder(str(tmp_path)), os.close

    def close_and_sweep(fd):
        path = os.readlink(f"/proc/self/fd/{fd}")
        close(fd)
        if PREFIX in path:
            with monkeypatch.context() as patch:
                patch.setattr(os, "close", close)
                other.sweep()

    monkeypatch.setattr(os, "close", close_and_sweep)
    Folder(str(tmp_path)).prepare()
