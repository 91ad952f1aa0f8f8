"""What is read from the cache on disk: verified, no more than a prompt needs, and no longer than computing takes."""

import asyncio
import errno
import os
import random
import threading
import time
from collections.abc import Awaitable, Callable

import pytest
from support.states.disk_cache import TARGET, Disk, again
from support.states.fake_cache_memory import ses1, tokens_of
from support.states.ses1_layouts import FORMS

from llamad.models.cache_disk import read_speed, reader
from llamad.models.cache_disk.reader import Fetched
from llamad.models.cache_disk.row_file import RowFile
from llamad.ses1.ses1 import cut, join

TOKENS = tokens_of(1, 1000)


def test_a_flipped_byte_anywhere_costs_the_block_and_nothing_else(disk, caplog):
    disk.memory.put(TOKENS[:256])
    disk.step()
    (file,) = disk.files()
    whole = file.read_bytes()
    chance = random.Random(5)
    for at in [0, 7, 8, 12, 16, len(whole) - 1, len(whole) - 9, *chance.sample(range(len(whole)), 60)]:
        data = bytearray(whole)
        data[at] ^= 0xFF
        file.write_bytes(data)
        assert again(disk).fetch([*TOKENS[:256], 1]) is None, at
        assert not file.exists(), at
    assert "is removed: " in caplog.text
    for n in (0, 5, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:n])
        assert again(disk).fetch([*TOKENS[:256], 1]) is None
        assert not file.exists(), n
    file.write_bytes(whole)
    assert again(disk).fetch([*TOKENS[:256], 1]) is not None


def test_blocks_behind_one_that_is_gone_are_removed_and_those_before_it_stay(disk):
    disk.memory.put(TOKENS)
    disk.step()
    other = again(disk)
    second = other.find(TOKENS).found.blocks[1]
    (disk.path / second.name).write_bytes(b"broken")
    assert other.fetch(TOKENS) is None
    assert other.fetch(TOKENS).n_tokens == 256
    for _ in range(2):
        other.step()
    assert [other.cache.index.get(file.name).n_tokens for file in disk.files()] == [256]
    assert other.fetch(TOKENS).n_tokens == 256


def test_a_file_under_the_name_of_another_is_refused(disk):
    disk.memory.put(TOKENS)
    disk.step()
    blocks = again(disk).find(TOKENS).found.blocks
    (disk.path / blocks[0].name).write_bytes((disk.path / blocks[1].name).read_bytes())
    assert again(disk).fetch(TOKENS) is None
    assert disk.cache.n_entries == 1


def test_a_state_that_another_model_wrote_is_refused_like_a_strangers(disk):
    disk.memory.put(TOKENS)
    disk.step()
    other = again(disk)
    assert (
        asyncio.run(
            other.cache.fetch(other.find(TOKENS), Disk(disk.path.parent, form=FORMS["m-rope"]).target)
        )
        is None
    )
    assert other.cache.counts.n_broken > 0
    for state in (ses1(TOKENS)[8 + 4 * len(TOKENS) : -2], b""):
        disk.memory.put(tokens_of(3, 900), state=state)
        disk.step()
        assert again(disk).find(tokens_of(3, 900)) is None


def test_a_slow_disk_delays_a_request_no_longer_than_computing(disk, monkeypatch):
    disk.memory.put(TOKENS)
    disk.step()
    other, is_stuck = again(disk), threading.Event()
    read = RowFile.read_into
    monkeypatch.setattr(RowFile, "read_into", lambda *args: is_stuck.wait(20) and read(*args))

    async def ask() -> float:
        wanted = other.find(TOKENS, token_seconds=0.0001)
        assert wanted is not None
        assert wanted.seconds == pytest.approx(0.0999)
        t_begin = time.monotonic()
        assert await other.cache.fetch(wanted, TARGET) is None
        return time.monotonic() - t_begin

    async def run() -> None:
        for _ in range(reader.N_THREADS):
            assert await ask() < 2
        assert other.find(TOKENS) is None  # all threads are stuck
        is_stuck.set()
        while other.cache.reader._n_stuck:
            await asyncio.sleep(0.01)
        assert other.find(TOKENS) is not None
        assert other.cache.reader._n_bytes == 0

    asyncio.run(run())
    assert other.cache.counts.n_late == reader.N_THREADS
    assert other.fetch(TOKENS) is not None
    other.source.forget_slots()
    assert other.find(TOKENS, token_seconds=1e-12) is None


def test_after_a_restart_the_speed_at_which_the_entry_was_computed_counts(disk):
    disk.token_seconds = 0.0003
    disk.memory.put(TOKENS)
    disk.step()
    other = again(disk)
    assert other.find(TOKENS, token_seconds=0.0).seconds == pytest.approx(0.0003 * 999)
    assert other.find(TOKENS, token_seconds=0.01).seconds == pytest.approx(0.01 * 999)


def test_only_the_blocks_that_a_prompt_needs_are_read(disk):
    disk.memory.put(tokens_of(1, 3000))
    disk.step()
    match = again(disk).find([*tokens_of(1, 300), 5, 6]).found
    assert [one.n_tokens for one in match.files] == [256, 512]
    # A few tokens of a block are not worth it.
    assert len(again(disk).find([*tokens_of(1, 3000)[:260], *tokens_of(5, 900)]).found.files) == 1


@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_the_speed_of_the_disk_is_known_before_the_first_prompt(disk, monkeypatch, seconds):
    """A fast disk is used at once, although computing is fast, too; a slow one is not."""
    for seed in range(4):
        disk.memory.put(tokens_of(seed, 1000))
    disk.step()
    monkeypatch.setattr(reader, "BYTES_MIN", 1)
    monkeypatch.setattr(read_speed, "BYTES_MIN", 1)
    monkeypatch.setattr(read_speed, "SPEED_DEFAULT", 1.0)
    read = RowFile.read_into

    def read_slowly(*args):
        time.sleep(seconds)
        return read(*args)

    monkeypatch.setattr(RowFile, "read_into", read_slowly)
    other = again(disk)
    wanted = other.find([*tokens_of(1, 1000), 1], token_seconds=2e-5 if seconds else 1e-3)
    assert (wanted is None) == (seconds > 0)


def test_too_few_files_say_nothing_of_the_speed_and_broken_ones_are_removed(disk, monkeypatch):
    disk.memory.put(TOKENS)
    disk.step()
    assert again(disk).cache.reader.speed.seconds(500_000_000) == 1.0
    monkeypatch.setattr(reader, "BYTES_MIN", 1)
    last = disk.files()[0]
    last.write_bytes(last.read_bytes()[:-9] + b"x" * 9)
    other = again(disk)
    assert other.cache.reader.speed.seconds(500_000_000) == 1.0
    assert not last.exists()


# --- block by block ----------------------------------------------------------------------------------------------


class Taking:
    """What takes blocks, and refuses those behind `n_max`."""

    def __init__(self, n_max: int = 1000) -> None:
        self.parts: list[Fetched] = []
        self.n_max = n_max

    async def __call__(self, part: Fetched) -> bool:
        self.parts.append(part)
        return len(self.parts) <= self.n_max

    @property
    def ends(self) -> list[int]:
        return [part.n_tokens for part in self.parts]


def fetch_parts(disk: Disk, taking: Callable[[Fetched], Awaitable[bool]], tokens=TOKENS) -> bool:
    wanted = disk.find(tokens)
    assert wanted is not None

    async def run() -> bool:
        is_whole = await disk.cache.fetch_parts(wanted, disk.target, taking)
        while disk.cache.reader._n_stuck:
            await asyncio.sleep(0.01)
        return is_whole

    is_whole = asyncio.run(run())
    assert disk.cache.reader._n_bytes == 0
    return is_whole


def test_blocks_come_in_order_and_together_are_the_state(disk):
    disk.memory.put(TOKENS)
    disk.step()
    other, taking = again(disk), Taking()
    assert fetch_parts(other, taking, [*TOKENS, 1, 2])
    assert [(part.n_begin, part.n_tokens) for part in taking.parts] == [
        (0, 256),
        (256, 512),
        (512, 768),
        (768, 1000),
    ]
    for part in taking.parts:
        assert bytes(part.blob)[: 8 + 4 * part.n_tokens] == ses1(TOKENS[: part.n_tokens], b"")
    pieces = [bytes(part.blob)[8 + 4 * part.n_tokens :] for part in taking.parts]
    assert join(TARGET.layout, pieces) == cut(TARGET.layout, ses1(TOKENS)[8 + 4 * 1000 :], 0, 1000)
    counts = other.cache.counts
    assert (counts.n_reads, counts.n_tokens_read, counts.n_late) == (1, 1000, 0)


def test_the_memory_of_a_block_that_was_taken_is_used_again(disk, monkeypatch):
    disk.memory.put(TOKENS)
    disk.step()
    monkeypatch.setattr(reader, "N_AHEAD", 1)
    taken, blobs = [], set()

    async def take(part: Fetched) -> bool:
        taken.append(bytes(part.blob))
        blobs.add(part.blob.id)
        if len(taken) > 1:  # the first one is still needed
            part.release()
        return True

    assert fetch_parts(again(disk), take)
    pieces = [data[8 + 4 * min(1000, 256 * (i + 1)) :] for i, data in enumerate(taken)]
    assert join(TARGET.layout, pieces) == cut(TARGET.layout, ses1(TOKENS)[8 + 4 * 1000 :], 0, 1000)
    assert len(blobs) == 2


def test_the_blocks_before_a_broken_one_are_taken(disk):
    disk.memory.put(TOKENS)
    disk.step()
    other, taking = again(disk), Taking()
    third = other.find(TOKENS).found.blocks[2]
    data = bytearray((disk.path / third.name).read_bytes())
    data[-5] ^= 1
    (disk.path / third.name).write_bytes(data)
    assert not fetch_parts(other, taking)
    assert taking.ends == [256, 512]
    assert not (disk.path / third.name).exists()
    assert other.cache.counts.n_tokens_read == 512


def test_a_block_of_another_model_is_refused(disk):
    disk.memory.put(TOKENS)
    disk.step()
    other, taking = again(disk), Taking()
    other.target = Disk(disk.path.parent, form=FORMS["m-rope"]).target
    assert not fetch_parts(other, taking)
    assert taking.ends == []
    assert other.cache.counts.n_broken > 0


def test_a_disk_that_fails_costs_only_what_it_does_not_read(disk, monkeypatch):
    disk.memory.put(TOKENS)
    disk.step()
    other, taking = again(disk), Taking()
    read = os.preadv

    def read_once(fd, views, at):
        if taking.parts:
            raise OSError(errno.EIO, "Input/output error")
        return read(fd, views, at)

    monkeypatch.setattr(reader, "N_AHEAD", 1)
    monkeypatch.setattr("llamad.models.cache_disk.row_file.os.preadv", read_once)
    assert not fetch_parts(other, taking)
    assert taking.ends == [256]
    assert other.cache.n_faults == 1


def test_nothing_is_read_after_a_block_that_is_not_taken(disk):
    disk.memory.put(TOKENS)
    disk.step()
    other, taking = again(disk), Taking(n_max=1)
    assert not fetch_parts(other, taking)
    assert taking.ends == [256, 512]
    assert other.cache.counts.n_tokens_read == 256


def test_what_is_not_there_in_time_is_computed(disk, monkeypatch):
    disk.memory.put(TOKENS)
    disk.step()
    other, taking, may_go_on = again(disk), Taking(), threading.Event()
    read = RowFile.read_into

    def read_first(file, *args):
        return (file.description.begin == 0 or may_go_on.wait(20)) and read(file, *args)

    monkeypatch.setattr(RowFile, "read_into", read_first)

    async def run() -> None:
        wanted = other.find(TOKENS, token_seconds=0.0003)
        t_begin = time.monotonic()
        assert not await other.cache.fetch_parts(wanted, TARGET, taking)
        assert time.monotonic() - t_begin < 5
        assert taking.ends == [256]
        assert other.cache.reader._n_stuck == 1
        assert other.cache.reader._n_bytes > 0
        may_go_on.set()
        while other.cache.reader._n_stuck:
            await asyncio.sleep(0.01)

    asyncio.run(run())
    assert (other.cache.counts.n_late, other.cache.counts.n_tokens_read) == (1, 256)
    assert other.cache.reader._n_bytes == 0
