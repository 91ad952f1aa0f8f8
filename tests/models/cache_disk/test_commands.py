"""`llamad cache list`, `rm` and `verify`, the real command, without a daemon and beside one."""

import errno
import json
import os
import subprocess
import sys

import pytest
from support.states.disk_cache import Disk, again
from support.states.fake_cache_memory import packed, tokens_of
from support.states.ses1_layouts import FORMS

from llamad.cache_commands import main
from llamad.models.cache_disk.turn_files import Answer


@pytest.fixture
def disk(tmp_path):
    made = Disk(tmp_path)
    made.memory.put(tokens_of(1, 1000))
    made.memory.put(tokens_of(2, 500), owner=1)
    made.step()
    return made


def cache(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "llamad", "cache", *arguments],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_list_shows_each_prompt_but_no_text_and_no_key(disk):
    path = str(disk.path.parent)
    done = cache("list", path)
    assert (done.returncode, done.stderr) == (0, "")
    head, *rows, last = done.stdout.splitlines()
    assert head.split() == ["NAME", "MODEL", "TOKENS", "SIZE", "USED", "KEY"]
    assert {row.split()[2] for row in rows} == {"1000", "500"}
    assert last.startswith("2 prompts, ")
    assert "key-one" not in done.stdout
    listed = json.loads(cache("list", "--json", LLAMA_ARG_CACHE_DISK=path).stdout)
    assert {one["name"] + ".block" for one in listed} < {file.name for file in disk.files()}
    assert sum(one["n_bytes"] for one in listed) == sum(file.stat().st_size for file in disk.files())
    assert {(one["model"], one["n_tokens"], one["owner"] == "") for one in listed} == {
        ("tiny", 1000, True),
        ("tiny", 500, False),
    }


def test_rm_removes_prompts_that_a_daemon_knows(disk):
    path = str(disk.path.parent)
    other = again(disk)
    assert other.has(tokens_of(1, 1000))
    name = next(one["name"] for one in json.loads(cache("list", path, "--json").stdout) if not one["owner"])
    assert cache("rm", path, name[:8]).stdout == "removed 1 prompts\n"
    assert len(disk.files()) == 2  # the blocks of the other prompt
    other.step()
    assert not other.has(tokens_of(1, 1000))
    missing = cache("rm", path, name)
    assert missing.returncode == 1
    assert f"{name} is not in the cache; `llamad cache list` shows what is there" in missing.stderr
    assert cache("rm", "--all", path).stdout == "removed 1 prompts\n"
    assert disk.files() == []
    assert cache("list", path).stdout == f"no prompts in {path}\n"


def test_verify_names_broken_prompts_and_removes_nothing(disk):
    path = str(disk.path.parent)
    done = cache("verify", path)
    assert (done.returncode, done.stdout) == (0, "6 files are good, 0 are broken\n")
    first, second = disk.files()[:2]
    data = bytearray(first.read_bytes())
    data[-len(data) // 3] ^= 1
    first.write_bytes(data)
    second.write_bytes(second.read_bytes()[:-3])
    done = cache("verify", path)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        f"{first.name}: its checksum is wrong",
        f"{second.name}: its size does not fit its description",
        "4 files are good, 2 are broken",
    ]
    assert "broken: its size does not fit its description" in cache("list", path).stdout
    assert len(disk.files()) == 6


@pytest.fixture
def unreadable(disk, monkeypatch):
    """The first file of the disk, which cannot be opened, and the path of the cache."""
    file, real = disk.files()[0], os.open

    def fail(path, *more, **named):
        if path == file.name:
            raise OSError(errno.EIO, "Input/output error")  # without a name, as from a read
        return real(path, *more, **named)

    monkeypatch.setattr(os, "open", fail)
    return file, str(disk.path.parent)


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_verified(unreadable, capsys):
    """The command ended at the first bad sector with "None: Input/output error"."""
    file, path = unreadable
    assert main(["verify", path], {}) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"{file.name}: Input/output error", "5 files are good, 1 are broken"]
    assert main(["list", path], {}) == 0
    assert "broken: Input/output error" in capsys.readouterr().out


@pytest.mark.parametrize("is_all", [True, False])
def test_a_file_that_cannot_be_read_can_be_removed(disk, unreadable, capsys, is_all):
    """One such file kept all others on the disk, because they were read to be counted."""
    file, path = unreadable
    assert main(["rm", path, "--all" if is_all else file.name], {}) == 0
    assert capsys.readouterr().out.startswith("removed ")
    assert not file.exists()
    assert len(disk.files()) == (0 if is_all else 5)


def test_files_that_cannot_be_removed_are_named_and_the_others_go(disk, monkeypatch, capsys):
    file, real = disk.files()[0], os.unlink

    def fail(path, **named):
        if path == file.name:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        real(path, **named)

    monkeypatch.setattr(os, "unlink", fail)
    assert main(["rm", str(disk.path.parent), "--all"], {}) == 1
    assert capsys.readouterr().err == f"llamad: {file.name} cannot be removed: Operation not permitted\n"
    assert disk.files() == [file]


def test_an_answer_that_cannot_be_read_is_named(disk, monkeypatch, capsys):
    """It may belong to the prompt that is removed, so somebody may want to remove it, too."""
    disk.cache.turns.keep(Answer(disk.cache.folder.salt_id, "", (b"a" * 16,), packed([1, 2]), b""))
    disk.step()
    real = os.open

    def fail(path, *more, **named):
        if str(path).endswith(".turn"):
            raise OSError(errno.EIO, "Input/output error")
        return real(path, *more, **named)

    monkeypatch.setattr(os, "open", fail)
    name = disk.cache.index.lasts()[0].name
    assert main(["rm", str(disk.path.parent), name], {}) == 0
    assert "stays, because it cannot be read: Input/output error" in capsys.readouterr().err
    assert not (disk.path / name).exists()


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        ([], 2, "name list, rm or verify"),
        (["clear"], 2, "name list, rm or verify"),
        (["list"], 2, "no folder is named"),
        (["list", "FOLDER", "--yaml"], 2, "'--yaml' is not known"),
        (["verify", "FOLDER", "abcd"], 2, "'abcd' is not known"),
        (["rm", "FOLDER"], 2, "no entry is named"),
        (["rm", "FOLDER", "--all", "abcd"], 2, "name entries or --all, not both"),
        (["list", "FOLDER/nothing"], 1, "has no prompt cache; name the folder that --cache-disk names"),
    ],
)
def test_wrong_arguments_are_refused_with_what_to_do(disk, arguments, status, reason):
    path = str(disk.path.parent)
    done = cache(*(one.replace("FOLDER", path) for one in arguments), LLAMA_ARG_CACHE_DISK="")
    assert (done.returncode, done.stdout) == (status, "")
    assert reason in done.stderr
    assert len(disk.files()) == 6


def test_rm_leaves_what_other_prompts_share(tmp_path):
    disk = Disk(tmp_path, form=FORMS["window"])
    stem = tokens_of(1, 600)
    for i in range(2):
        disk.memory.put([*stem, *tokens_of(2 + i, 300)])
        disk.step()
    n_files = len(disk.files())
    names = [one["name"] for one in json.loads(cache("list", str(tmp_path), "--json").stdout)]
    assert len(names) == 2
    assert cache("rm", str(tmp_path), names[0]).stdout == "removed 1 prompts\n"
    assert len(disk.files()) == n_files - 3  # the blocks from the third on, and the end
    left = again(disk, form=FORMS["window"])
    assert left.cache.n_entries == 1
    assert not left.cache.index.orphans()


def test_help_is_printed():
    assert cache("--help").stdout.startswith("usage: llamad cache list [PATH]")
