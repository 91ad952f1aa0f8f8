"""The cache on disk over a cache memory that a test fills: what is written is found again, verified, and only by those
whom it belongs to. The threads run as in a daemon, except where a test calls the writer's steps itself."""

import asyncio
import errno
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support.live_daemon import until
from support.states.disk_cache import TARGET, Disk, again
from support.states.disk_cache_writer import entry_tokens
from support.states.fake_cache_memory import packed, ses1, tokens_of
from support.states.ses1_layouts import FORMS

from llamad.models.cache_disk import faults, writer
from llamad.models.cache_disk.disk_cache import DiskCache
from llamad.models.cache_disk.folder import SUBFOLDER, FolderError
from llamad.models.cache_disk.prefixes import Chain, Group
from llamad.models.cache_disk.row_file import RowFile
from llamad.models.cache_disk.state_rows import cut
from llamad.ses1 import ses1 as ses1_module

TESTS = Path(__file__).parents[2]
TOKENS = tokens_of(1, 1000)


def test_what_a_daemon_has_written_another_one_finds(disk):
    disk.memory.put(TOKENS)
    disk.step()
    assert len(disk.files()) == 4  # three blocks of 256 tokens, and 232 tokens
    for file in disk.files():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(disk.path.stat().st_mode) == 0o700
    assert stat.S_IMODE((disk.path / "salt").stat().st_mode) == 0o600
    fetched = again(disk).fetch([*TOKENS, 1, 2, 3])
    assert bytes(fetched.blob) == ses1(TOKENS)
    assert fetched.n_tokens == len(TOKENS)
    # A prompt that leaves the entry's tokens early gets the blocks that it begins with; the engine cuts the last one.
    part = again(disk).fetch([*TOKENS[:600], 1, 2, 3])
    assert part.n_tokens == 768
    assert bytes(part.blob)[8 : 8 + 4 * 768] == packed(TOKENS[:768])
    assert again(disk).find([*TOKENS[:600], 1, 2, 3]).found.n_tokens == 600
    assert again(disk).find([*TOKENS[:200], 1, 2, 3]) is None  # not enough to be worth it


def test_nobody_finds_the_entries_of_another_key_model_or_adapter(disk):
    disk.memory.put(TOKENS, owner=1)
    disk.memory.put(tokens_of(2, 1000))
    disk.memory.put(tokens_of(3, 1000), adapters=(77, 0, 0))
    disk.step()
    other = again(disk)
    assert other.find(TOKENS, "key-one") is not None
    assert other.find(TOKENS, "key-two") is None
    assert other.find(TOKENS, "") is None
    assert other.find(tokens_of(2, 1000), "") is not None
    assert other.find(tokens_of(2, 1000), "key-one") is None  # it may come from --share-prefixes
    assert other.find(tokens_of(3, 1000), adapters=77) is not None
    assert other.find(tokens_of(3, 1000)) is None
    assert again(disk, model="another").find(tokens_of(2, 1000)) is None
    assert b"key-one" not in b"".join(file.read_bytes() for file in disk.files())


def test_nothing_is_written_or_found_before_the_first_engine(tmp_path):
    disk = Disk(tmp_path, model="")
    disk.memory.put(TOKENS)
    disk.step()
    assert (disk.files(), disk.find(TOKENS)) == ([], None)


def test_what_cannot_be_found_again_is_not_written(disk):
    disk.memory.put(tokens_of(1, 200))  # short
    wrong = disk.memory.put(tokens_of(4, 1000))  # its engine went wrong
    disk.memory.data[wrong] = bytes(len(disk.memory.data[wrong]))
    other = disk.memory.put(tokens_of(5, 1000))
    disk.memory.infos[other] = disk.memory.infos[other]._replace(n_tokens=900)
    disk.memory.put(tokens_of(2, 1000), owner=9)  # nobody's
    disk.memory.put(tokens_of(3, 1000), adapters=(5, 6, 100))  # an activated adapter
    disk.memory.put([*TOKENS[:500], -3, *TOKENS[500:]])  # an image
    disk.step()
    assert disk.files() == []


def test_a_turn_writes_only_what_it_adds_and_forks_share_their_stem(disk):
    whole, writes = ses1(TOKENS), []
    for n in (400, 700, 760, 1000):
        state = cells_of(whole, n)
        disk.memory.put(TOKENS[:n], state=state)
        disk.step()
        writes.append(disk.cache.counts.n_writes)
    assert writes == [2, 4, 5, 7]  # the last, incomplete block is written again
    assert len(disk.files()) == 4  # and its earlier versions are gone
    assert bytes(again(disk).fetch([*TOKENS, 1]).blob) == whole
    fork = [*TOKENS[:600], *tokens_of(5, 300)]
    disk.memory.put(fork)
    disk.step()
    assert disk.cache.counts.n_writes == 9
    disk.memory.put(TOKENS[:512], state=cells_of(whole, 512))  # has nothing new
    disk.step()
    assert disk.cache.counts.n_writes == 9
    assert disk.cache.n_entries == 2
    assert again(disk).fetch([*fork, 1]).n_tokens == 900


def cells_of(whole: bytes, n: int) -> bytes:
    """The state of the first n tokens of one that has more: equal beginnings have equal cells."""
    layout, n_all = TARGET.layout, int.from_bytes(whole[4:8], "little")
    return ses1_module.join(layout, [ses1_module.cut(layout, whole[8 + 4 * n_all :], 0, n)])


@pytest.mark.parametrize("form", ["window", "recurrent", "hybrid", "hybrid with a window"])
def test_states_that_cannot_be_cut_have_an_end_for_each_turn(tmp_path, form):
    disk = Disk(tmp_path, form=FORMS[form])
    for n in (400, 700, 768):
        disk.memory.put(TOKENS[:n])
        disk.step()
    assert len(list(disk.path.glob("*.end"))) == 3
    assert len(list(disk.path.glob("*.block"))) == 3  # shared by all turns
    other = again(disk, form=FORMS[form])
    for prompt, n in ((TOKENS[:450], 400), (TOKENS[:750], 700), (TOKENS[:769], 768), (TOKENS[:768], 700)):
        fetched = other.fetch(prompt)
        assert fetched.n_tokens == n
        assert bytes(fetched.blob)[8 : 8 + 4 * n] == packed(TOKENS[:n])
    assert other.find([*TOKENS[:399], 5, 6]) is None
    assert other.find([*TOKENS[:300], *tokens_of(7, 500)]) is None


def test_what_is_in_memory_or_in_a_slot_is_not_read_again(disk):
    id = disk.memory.put(TOKENS)
    disk.step()
    assert disk.find(TOKENS) is None  # it is in the cache memory
    disk.memory.drop(id)
    disk.step()
    assert disk.find(TOKENS) is not None
    disk.source.note(disk.find(TOKENS).chain)
    assert disk.cache.find(disk.source, "", 0, packed(TOKENS)) is None  # the last prompt: a slot has it
    disk.cache.find(disk.source, "", 0, packed(tokens_of(9, 1000)))
    assert disk.cache.find(disk.source, "", 0, packed(TOKENS)) is not None  # another took the slot


def test_the_limit_holds_from_the_start_and_the_least_valuable_go(tmp_path):
    disk = Disk(tmp_path)
    for i in range(6):
        disk.memory.put(tokens_of(i, 1000 + 100 * i))
    disk.memory.put(tokens_of(9, 1000), session=5)
    disk.step()
    sizes = {file.name: file.stat().st_size for file in disk.files()}
    limit = sum(sizes.values()) // 2
    other = Disk(tmp_path, bytes_max=limit)
    other.step()
    assert sum(file.stat().st_size for file in other.files()) <= limit
    assert other.find(tokens_of(9, 1000)) is not None  # its client names its conversations
    assert other.find(tokens_of(5, 1500)) is not None
    assert other.find(tokens_of(0, 1000)) is None
    for i in range(20, 30):  # longer ones push out shorter ones, but not the other way round
        other.memory.put(tokens_of(i, 2000 if i % 2 else 300))
        other.step()
        assert sum(file.stat().st_size for file in other.files()) <= limit
        last = tokens_of(i - 1 + i % 2, 2001)
        assert i == 20 or other.cache.index.find(chain(other, last)).n_tokens == 2000
        other.memory.drop(max(other.memory.infos))
    assert other.cache.counts.n_evicted


def test_used_entries_are_noted_for_the_next_daemon(disk):
    disk.memory.put(TOKENS)
    disk.step()
    for file in disk.files():
        os.utime(file, (1, 1))
    other = again(disk)
    assert other.fetch(TOKENS) is not None
    assert min(file.stat().st_mtime for file in disk.files()) > time.time() - 60
    assert (other.cache.counts.n_reads, other.cache.counts.n_tokens_read) == (1, 1000)


# Broken files.


def test_files_of_the_format_before_blocks_are_removed_with_one_line(disk, caplog):
    for i in range(3):
        (disk.path / f"{i:032x}.kv").write_bytes(b"LLDKV\0\0\1")
    with caplog.at_level("INFO"):
        disk.step()
        disk.step()
    assert caplog.text.count("removed 3 files of an older version") == 1
    assert list(disk.path.glob("*.kv")) == []


def test_other_files_in_the_folder_stay(disk, caplog):
    (disk.path / "notes.txt").write_text("mine")
    (disk.path / ("a" * 32 + ".block")).mkdir()
    disk.memory.put(TOKENS)
    disk.step()
    assert (disk.path / "notes.txt").read_text() == "mine"
    disk.step()
    assert caplog.text.count("it is not a regular file") == 1  # and not at every look
    assert disk.find(TOKENS) is None
    assert again(disk).fetch(TOKENS) is not None


# Faults of the disk.


def test_a_folder_that_is_not_there_stops_the_start(tmp_path):
    with pytest.raises(FolderError, match="is not a folder; create it"):
        DiskCache(str(tmp_path / "nothing"), 0)
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match="is not a folder; create it"):
        DiskCache(str(tmp_path / "file"), 0)
    (tmp_path / SUBFOLDER).write_text("")
    with pytest.raises(FolderError, match="cannot be used: Not a directory; the daemon's user"):
        DiskCache(str(tmp_path), 0)


def test_a_full_disk_pauses_the_writer_and_leaves_nothing_half(disk, monkeypatch, caplog):
    old = disk.memory.put(TOKENS)
    disk.step()
    monkeypatch.setattr(faults, "PAUSE_SECONDS_MIN", 0.05)
    monkeypatch.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left")))
    disk.memory.put(tokens_of(2, 1000))
    for _ in range(5):
        disk.step()
        assert disk.cache.write_faults.is_paused
        time.sleep(0.06)
    disk.memory.drop(old)
    disk.source.held = frozenset()
    assert disk.fetch(TOKENS) is not None  # it can still be read
    monkeypatch.undo()
    assert caplog.text.count("cannot be written: No space left; requests go on without it") == 1
    assert len(list(disk.path.iterdir())) == 5  # the salt and the first entry
    time.sleep(1.0)
    disk.step()
    assert caplog.text.count("works again") == 1
    assert len(disk.files()) == 8


def test_a_write_that_takes_too_long_is_given_up(disk, monkeypatch, caplog):
    monkeypatch.setattr(writer, "WRITE_SECONDS", -5.0)
    disk.memory.put(TOKENS)
    disk.step()
    assert "writing 0 MiB takes more than -5 s" in caplog.text
    assert disk.files() == []
    assert disk.cache.write_faults.n_total == 1


def test_a_folder_removed_at_run_time_costs_the_cache_until_it_is_back(disk, monkeypatch, caplog):
    monkeypatch.setattr(faults, "PAUSE_SECONDS_MIN", 0.01)
    disk.memory.put(TOKENS)
    disk.step()
    found = disk.cache.index.names()
    disk.memory.drop(1)
    disk.cache.writer.step()
    shutil.rmtree(disk.path.parent)
    disk.source.held = frozenset()
    wanted = disk.find(TOKENS)
    assert asyncio.run(disk.cache.fetch(wanted, TARGET)) is None
    disk.memory.put(tokens_of(2, 1000))
    time.sleep(0.02)
    disk.step()
    assert caplog.text.count("requests go on without it") == 1
    disk.path.parent.mkdir()
    time.sleep(0.2)
    disk.step()
    assert "works again" in caplog.text
    assert found.isdisjoint(disk.cache.index.names())
    assert again(disk).fetch(tokens_of(2, 1000)) is not None  # by the same salt
    assert stat.S_IMODE(disk.path.stat().st_mode) == 0o700


def test_a_bug_pauses_the_thread_and_does_not_end_it(disk, monkeypatch, caplog):
    monkeypatch.setattr(faults, "PAUSE_SECONDS_MIN", 0.1)
    entries = disk.memory.entries
    disk.memory.entries = lambda: 1 // 0
    disk.cache.start()
    until(lambda: disk.cache.write_faults.n_total >= 1)
    disk.memory.entries = entries
    disk.memory.put(TOKENS)
    until(lambda: disk.files() != [])
    assert "ZeroDivisionError" in caplog.text


def test_files_that_others_remove_or_add_are_noticed(disk):
    disk.memory.put(TOKENS)
    disk.step()
    other = again(disk)
    for file in disk.files():
        file.unlink()
    disk.memory.put(tokens_of(2, 1000))
    disk.step()
    assert other.fetch(TOKENS) is None  # it is gone, and that is no fault
    assert not other.cache.read_faults.n_total
    other.step()
    assert other.find(TOKENS) is None
    assert other.fetch(tokens_of(2, 1000)) is not None


def test_what_is_used_in_memory_stays_on_disk(tmp_path):
    disk = Disk(tmp_path)
    old = disk.memory.put(TOKENS)
    disk.step()
    disk.memory.put(tokens_of(2, 1000))
    disk.step()
    for one in disk.cache.index.all():
        one.used -= 86400.0
        one.noted = one.used
    disk.memory.use(old)
    disk.step()
    recent = [one for one in disk.cache.index.all() if one.used > time.time() - 60]
    assert {one.n_tokens for one in recent} == {256, 512, 768, 1000}
    assert {one.n_returns for one in recent} == {1}
    assert sum((disk.path / one.name).stat().st_mtime > time.time() - 60 for one in recent) == 4


# The thread.


def test_the_thread_writes_new_entries_soon_and_all_of_them_at_the_end(disk, monkeypatch, caplog):
    monkeypatch.setattr(writer, "POLL_SECONDS", 60.0)
    disk.cache.start()
    for i in range(10):
        disk.memory.put(tokens_of(i, 600))
    asyncio.run(disk.cache.finish(20))
    assert len(disk.files()) == 30
    assert "not all prompts" not in caplog.text
    disk.cache.write_faults.failed(OSError(errno.EIO, "I/O error"))
    t_begin = time.monotonic()
    asyncio.run(disk.cache.finish(20))
    assert "not all prompts could be written within 20 s" in caplog.text
    assert time.monotonic() - t_begin < 10


def test_the_end_is_written_at_normal_priority(disk, monkeypatch):
    """Other work on the machine does not keep the daemon from ending. What the first thread has begun, the second one
    finishes."""
    monkeypatch.setattr(writer, "POLL_SECONDS", 60.0)
    priorities: dict[str, list[int]] = {}
    begun, go_on = threading.Event(), threading.Event()

    def slow_cut(layout, segments, row):
        number = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        priorities.setdefault(threading.current_thread().name, []).append(number)
        begun.set()
        assert go_on.wait(20)
        return cut(layout, segments, row)

    monkeypatch.setattr(writer, "cut", slow_cut)
    normal = os.getpriority(os.PRIO_PROCESS, 0)
    disk.memory.put(tokens_of(1, 600))
    disk.cache.start()
    assert begun.wait(20)
    threading.Timer(0.2, go_on.set).start()
    asyncio.run(disk.cache.finish(20))
    assert len(disk.files()) == 3
    (seen,) = priorities.values()
    assert seen[0] >= writer.NICE
    assert seen[-1] == normal
    asyncio.run(disk.cache.finish(20))


def test_an_entry_that_disappears_while_the_thread_looks_is_skipped(disk):
    disk.memory.put(TOKENS)
    del disk.memory.data[1]
    disk.step()
    assert disk.files() == []


def chain(disk: Disk, tokens: list[int]) -> Chain:
    return Chain(disk.cache.folder.salt, Group(disk.source.fingerprint, "", 0), packed(tokens))


def killed_while_writing(path: Path, n_times: int) -> None:
    """Each time, what was complete is there and verifies, and no temporary file survives the next start."""
    chance, n_written = random.Random(7), 0
    for i in range(n_times):
        command = [sys.executable, "-m", "support.states.disk_cache_writer", str(path), str(1000 * i)]
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(TESTS)}
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        first = [child.stdout.readline() for _ in range(chance.randrange(1, 4))]
        time.sleep(chance.uniform(0.0, 0.05))
        child.send_signal(signal.SIGKILL)
        written = [int(line) for line in (*first, *child.stdout.read().split("\n")[:-1])]
        child.wait()
        child.stdout.close()
        disk = Disk(path)
        disk.step()
        assert len(list(disk.path.iterdir())) == len(disk.files()) + 1  # and the salt
        for n in written:
            assert len(disk.cache.index.find(chain(disk, entry_tokens(n))).files) == 3, n
        assert disk.cache.n_entries in (
            len(written),
            len(written) + 1,
        )  # one may be incomplete, or not reported
        assert disk.cache.counts.n_broken == 0
        assert not disk.cache.index.orphans()
        for file in disk.files():
            with disk.cache.folder.opened() as folder, RowFile(folder, file.name) as row:
                row.verify()
            file.unlink()
        n_written += len(written)
    assert n_written > n_times


def test_a_daemon_killed_while_it_writes_leaves_whole_entries_only(tmp_path):
    killed_while_writing(tmp_path, 5)


@pytest.mark.soak
def test_a_daemon_killed_fifty_times_while_it_writes_leaves_whole_entries_only(tmp_path):
    killed_while_writing(tmp_path, 50)
