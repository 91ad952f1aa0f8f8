"""Prompts whose cells lie in several entries of the cache memory: on disk they are like any other."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from support.states.disk_cache import TARGET, Disk, again
from support.states.fake_cache_memory import packed, ses1, tokens_of
from support.states.ses1_layouts import FORMS

from llamad.models.cache_disk import copies
from llamad.protocol.cache_memory import Segment, checksum

TOKENS = tokens_of(1, 1000)


def made(path: Path, form: str = "plain") -> Disk:
    path.mkdir(exist_ok=True)
    return Disk(path, form=FORMS[form])


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


@pytest.mark.parametrize("form", ["plain", "window", "hybrid"])
def test_a_long_prompt_is_copied_a_few_entries_at_a_time(tmp_path: Path, form: str, monkeypatch) -> None:
    """All of it together would be gigabytes in the front, which no limit counts."""
    monkeypatch.setattr(copies, "BYTES_MAX", 1)
    disk = made(tmp_path, form)
    pins: list[list[int]] = []
    pin = disk.memory.pin

    def noted(id: int, begin: int = 0, end: int = 1 << 30) -> list[Segment] | None:
        segments = pin(id, begin, end)
        pins.append([one.n_tokens for one in segments or ()])
        return segments

    monkeypatch.setattr(disk.memory, "pin", noted)
    if form == "plain":
        disk.memory.put_parts(TOKENS, (300, 520, 1000), disk.target.layout)
    else:
        disk.memory.put(TOKENS)
    disk.step()
    if form == "plain":  # for the tokens, then for the blocks of 256; the last entry is always there
        assert pins == [[1000], [300, 1000], [300, 520, 1000], [520, 1000]]
    monkeypatch.undo()
    whole = made(tmp_path / "whole", form)
    whole.memory.put(TOKENS)
    whole.step()
    fetched, other = (again(one, form=FORMS[form]).fetch([*TOKENS, 1]) for one in (disk, whole))
    assert bytes(fetched.blob) == bytes(other.blob)


def test_a_prompt_that_goes_away_while_it_is_written_costs_nothing(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(copies, "BYTES_MAX", 1)
    disk = made(tmp_path)
    id = disk.memory.put_parts(TOKENS, (300, 520, 1000), TARGET.layout)
    write = disk.cache.folder.write

    def dropped(name: str, pieces: Iterable[bytes | memoryview]) -> int:
        disk.memory.data.pop(id, None)
        return write(name, pieces)

    monkeypatch.setattr(disk.cache.folder, "write", dropped)
    disk.step()
    assert len(disk.files()) == 1
    assert not disk.cache.write_faults.n_total
    disk.memory.data[id] = ses1(TOKENS)  # it is tried again once it is there
    disk.memory.before[id] = []
    disk.memory.infos[id] = disk.memory.infos[id]._replace(checksum=checksum(disk.memory.data[id]))
    disk.step()
    assert len(disk.files()) == 4
