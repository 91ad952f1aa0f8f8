"""Answers on disk: what a daemon has kept another one finds, and nothing that is damaged or belongs to someone else."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from llamad.models.cache_disk import turn_files
from llamad.models.cache_disk.disk_cache import DiskCache
from llamad.models.cache_disk.folder import SUBFOLDER
from llamad.models.cache_disk.turn_files import Answer

TOKENS = bytes(range(40))


def opened(path: Path, bytes_max: int = 0) -> DiskCache:
    """Return a cache that has read its folder, as a daemon's after its start."""
    cache = DiskCache(str(path), bytes_max)
    step(cache)
    return cache


def step(cache: DiskCache) -> None:
    cache.writer._t_refresh = 0.0
    cache.writer.step()


def answer(cache: DiskCache, name: str, owner: str = "", n: int = 10) -> Answer:
    data = name.encode() + bytes(n)
    return Answer(cache.folder.salt_id, owner, (name.encode(), b"id " + name.encode()), TOKENS, data)


def files(path: Path) -> list[Path]:
    return sorted((path / SUBFOLDER).glob("*.turn"))


def test_another_daemon_finds_what_was_kept(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    first, second = answer(cache, "place"), answer(cache, "place", n=20)
    cache.turns.keep(first)
    cache.turns.keep(first)
    cache.turns.keep(second)
    assert cache.turns.find(b"place") == [second, first]
    assert files(tmp_path) == []  # a request does not write
    step(cache)
    assert len(files(tmp_path)) == 2
    assert {stat.S_IMODE(file.stat().st_mode) for file in files(tmp_path)} == {0o600}
    other = opened(tmp_path)
    assert sorted(map(turn_files.packed, other.turns.find(b"id place"))) == sorted(
        map(turn_files.packed, [first, second])
    )
    assert other.turns.find(b"another") == []
    # A daemon beside it sees what is new, and what is gone.
    other.turns.keep(answer(other, "new"))
    step(other)
    step(cache)
    assert cache.turns.find(b"new")
    for file in files(tmp_path):
        file.unlink()
    step(cache)
    assert len(cache.turns) == 0
    assert cache.turns.find(b"place") == []


@pytest.mark.parametrize("damage", ["byte", "cut", "empty", "name", "folder", "salt"])
def test_damaged_files_are_removed(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    cache = opened(tmp_path)
    cache.turns.keep(answer(cache, "place"))
    cache.turns.keep(answer(cache, "good"))
    step(cache)
    file = next(one for one in files(tmp_path) if b"good" not in one.read_bytes())
    content = file.read_bytes()
    if damage == "byte":
        file.write_bytes(content[:30] + bytes([content[30] ^ 1]) + content[31:])
    elif damage == "cut":
        file.write_bytes(content[:-1])
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "name":
        file = file.rename(file.with_name("0" * 32 + ".turn"))
    elif damage == "folder":
        file.unlink()
        file.mkdir()
    else:
        strange = Answer(b"12345678", "", (b"place",), TOKENS, b"")
        file.unlink()
        file = file.with_name(turn_files.name_of(turn_files.packed(strange)))
        file.write_bytes(turn_files.packed(strange))
    other = opened(tmp_path)
    assert other.turns.find(b"place") == []
    assert len(other.turns.find(b"good")) == 1
    if damage != "folder":
        assert not file.exists()
    assert f"the entry {file.name} of the cache on disk is removed" in caplog.text or damage == "folder"


def test_a_full_folder_drops_the_oldest_answers_of_the_key_with_most(tmp_path: Path) -> None:
    limit = 40 * turn_files.BLOCK * turn_files.LIMIT_PART
    cache = opened(tmp_path, limit)
    for i in range(5):
        cache.turns.keep(answer(cache, f"small {i}", owner="one"))
    for i in range(50):
        cache.turns.keep(answer(cache, f"big {i}", owner="two"))
        if i == 30:
            assert cache.turns.find(b"big 0")
        if i % 10 == 9:
            step(cache)
            assert sum(file.stat().st_blocks * 512 for file in files(tmp_path)) <= limit
    kept = {i for i in range(50) if cache.turns.find(b"big %d" % i)}
    assert kept == {0, *range(16, 50)}
    assert all(cache.turns.find(b"small %d" % i) for i in range(5))
    assert len(files(tmp_path)) == len(cache.turns) == 40
    cache.turns.keep(answer(cache, "huge", n=6 * turn_files.BLOCK))
    assert cache.turns.find(b"huge") == []
    # The next daemon keeps the same limit, and knows which were used last.
    assert len(opened(tmp_path, limit // 2).turns) == 20
    assert len(files(tmp_path)) == 20


def test_a_full_disk_costs_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = opened(tmp_path)
    cache.turns.keep(answer(cache, "place"))
    with monkeypatch.context() as patched:
        patched.setattr(cache.folder, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
        cache.writer.step()
    assert cache.write_faults.n_total == 1
    assert cache.turns.find(b"place")
    assert cache.turns.is_behind
    cache.write_faults._t_end = 0.0
    cache.writer.step()
    assert len(files(tmp_path)) == 1
    assert not cache.turns.is_behind


def test_the_command_verifies_and_removes_answers(tmp_path: Path) -> None:
    def command(*arguments: str) -> str:
        run = [sys.executable, "-m", "llamad", "cache", *arguments]
        return subprocess.run(run, capture_output=True, text=True, timeout=60, env=dict(os.environ)).stdout

    cache = opened(tmp_path)
    cache.turns.keep(answer(cache, "one"))
    cache.turns.keep(answer(cache, "two"))
    step(cache)
    assert "2 files are good, 0 are broken" in command("verify", str(tmp_path))
    file = files(tmp_path)[0]
    file.write_bytes(file.read_bytes()[:-2])
    assert f"{file.name}: its checksum is wrong" in command("verify", str(tmp_path))
    command("rm", str(tmp_path), "--all")
    assert files(tmp_path) == []


def test_nothing_is_kept_without_room(tmp_path: Path) -> None:
    cache = opened(tmp_path, 1000)
    cache.turns.keep(answer(cache, "place"))
    assert len(cache.turns) == 0


WRITER = """
import sys
from llamad.models.cache_disk.disk_cache import DiskCache
from llamad.models.cache_disk.turn_files import Answer
cache = DiskCache(sys.argv[1], 0)
for i in range(1 << 30):
    name = b"%s %d" % (sys.argv[2].encode(), i)
    cache.turns.keep(Answer(cache.folder.salt_id, "", (name,), bytes(40), bytes(100_000) + name))
    cache.writer.step()
    print(i, flush=True)
"""


def test_a_killed_writer_leaves_whole_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for i in range(8):
        command = [sys.executable, "-c", WRITER, str(tmp_path), str(i)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            n_written = [int(process.stdout.readline()) for _ in range(i + 1)][-1] + 1
            process.kill()
        cache = opened(tmp_path)
        assert all(cache.turns.find(b"%d %d" % (i, n)) for n in range(n_written))
        assert cache.counts.n_broken == 0
        assert "removed" not in caplog.text
        left = set(os.listdir(tmp_path / SUBFOLDER)) - {"salt", *(file.name for file in files(tmp_path))}
        assert left == set()
