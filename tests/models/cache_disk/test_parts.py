"""Prompts whose cells lie in several entries of the cache memory: on disk they are like any other."""

from pathlib import Path

import pytest
from support.states.disk_cache import TARGET, Disk, again
from support.states.fake_cache_memory import packed, ses1, tokens_of

from llamad.protocol.cache_memory import checksum

TOKENS = tokens_of(1, 1000)


def made(path: Path) -> Disk:
    path.mkdir(exist_ok=True)
    return Disk(path)


def files(disk: Disk) -> list[int]:
    """Sizes of the files, in order; names differ by the salt."""
    return sorted(file.stat().st_size for file in disk.files())


def test_it_is_written_like_a_whole_one(tmp_path: Path) -> None:
    parts, whole = made(tmp_path / "parts"), made(tmp_path / "whole")
    parts.memory.put_parts(TOKENS, (300, 511, 512, 900, 1000), TARGET.layout)
    parts.step()
    whole.memory.put(TOKENS)
    whole.step()
    assert bytes(again(parts).fetch([*TOKENS, 1]).blob) == ses1(TOKENS)
    assert files(parts) == files(whole)


def test_of_a_turn_only_the_entries_with_new_blocks_are_read(tmp_path: Path) -> None:
    """The first one is damaged here, which would be noticed."""
    disk = made(tmp_path)
    disk.memory.put_parts(TOKENS[:700], (300, 520, 700), TARGET.layout)
    disk.step()
    id = disk.memory.put_parts(TOKENS, (300, 520, 700, 1000), TARGET.layout)
    first = disk.memory.before[id][0]
    disk.memory.before[id][0] = first._replace(checksum=first.checksum ^ 1)
    disk.step()
    blob, n_head = bytes(again(disk).fetch([*TOKENS, 1]).blob), 8 + 4 * len(TOKENS)
    assert (len(blob), blob[:n_head]) == (len(ses1(TOKENS)), ses1(TOKENS)[:n_head])


@pytest.mark.parametrize("wrong", ["checksum", "tokens"])
def test_with_a_wrong_part_it_is_not_written(tmp_path: Path, wrong: str) -> None:
    disk = made(tmp_path)
    id = disk.memory.put_parts(TOKENS, (300, 700, 1000), TARGET.layout)
    part = disk.memory.before[id][1]
    if wrong == "tokens":
        data = bytearray(part.data)
        data[8:12] = packed([TOKENS[0] ^ 1])
        disk.memory.before[id][1] = part._replace(data=memoryview(data), checksum=checksum(data))
    else:
        disk.memory.before[id][1] = part._replace(checksum=part.checksum ^ 1)
    disk.step()
    assert disk.files() == []
