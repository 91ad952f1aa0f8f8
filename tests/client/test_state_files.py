"""The files of states: no name leaves the folder, no failure and no crash leaves a file that is half there."""

import errno
import os
import random
import resource
import signal
import stat
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.base import atomic_file
from llamad.base.atomic_file import PREFIX
from llamad.client.state_files import FileRefused, StateFiles, check_name

BIG = 2**40


@pytest.fixture
def files(tmp_path):
    made = StateFiles(str(tmp_path))
    yield made
    made.close()


def read(files, key, name, bytes_max=BIG):
    with files.open(key, name, bytes_max) as file:
        return file.read(BIG)


def refused(status, work, *args):
    with pytest.raises(FileRefused) as caught:
        work(*args)
    assert caught.value.status == status
    return str(caught.value)


def test_what_is_written_is_read(files, tmp_path):
    data = random.Random(1).randbytes(9_000_001)
    assert files.write("", "a.bin", [data[:5], memoryview(data)[5:]]) == len(data)
    assert (tmp_path / "a.bin").read_bytes() == data
    assert stat.S_IMODE((tmp_path / "a.bin").stat().st_mode) == 0o600
    assert files.size("", "a.bin") == len(data)
    assert read(files, "", "a.bin", len(data)) == data
    with files.open("", "a.bin", BIG) as file:
        into = bytearray(5_000_000)
        file.read_into(memoryview(into), 4_000_001)
        assert (bytes(into), file.size) == (data[4_000_001:], len(data))
        with pytest.raises(FileRefused, match="was truncated"):
            file.read_into(memoryview(into), 4_000_002)
    files.write("", "a.bin", [b"shorter"])
    assert (tmp_path / "a.bin").read_bytes() == b"shorter"
    files.write("", "empty", [])
    assert len(read(files, "", "empty")) == 0
    assert sorted(os.listdir(tmp_path)) == ["a.bin", "empty"]


def test_a_file_belongs_to_its_key(files, tmp_path):
    files.write("key-0a", "same", [b"a"])
    files.write("key-0b", "same", [b"b"])
    assert read(files, "key-0a", "same") == b"a"
    assert read(files, "key-0b", "same") == b"b"
    assert stat.S_IMODE((tmp_path / "key-0a").stat().st_mode) == 0o700
    assert "same" in refused(404, read, files, "", "same")
    refused(404, read, files, "key-0c", "same")
    for key in ("..", "key-/../x", "key-", "key-0a/..", "other"):
        refused(500, files.write, key, "same", [b"x"])
    assert sorted(os.listdir(tmp_path)) == ["key-0a", "key-0b"]


BAD_NAMES = ["", ".", "..", "...", "a/b", "/etc/passwd", "../a", "a\\b", "a\0b", "a\nb", "\x7f", "a\x9f"]
BAD_NAMES += [PREFIX, f"{PREFIX}1-2", "x" * 256, "ä" * 128, "\ud800"]


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_names_that_are_refused(files, tmp_path, name):
    for work, *args in ((files.write, "", name, [b"x"]), (read, files, "", name), (files.size, "", name)):
        assert "name" in refused(400, work, *args)
    assert os.listdir(tmp_path) == []


@given(st.text(st.characters(), max_size=300) | st.text("./\\\0 -~ab\u0301", max_size=8))
def test_every_name_is_refused_or_one_file_of_the_folder(name):
    try:
        check_name(name)
    except FileRefused:
        return
    assert os.path.basename(name) == name
    assert os.path.normpath(f"/folder/{name}") == f"/folder/{name}"
    assert 0 < len(os.fsencode(name)) <= 255
    assert name.isprintable() or not any(c < " " for c in name)


@given(st.lists(st.sampled_from("abc.- ~é\u4e00'\"$*"), min_size=1, max_size=40).map("".join))
def test_allowed_names_are_files_of_that_name(tmp_path_factory, name):
    if not name.strip("."):
        return
    folder = tmp_path_factory.mktemp("names")
    files = StateFiles(str(folder))
    files.write("", name, [b"x"])
    assert os.listdir(folder) == [name]
    files.close()


def test_links_and_other_things_are_refused(files, tmp_path):
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.write_bytes(b"outside")
    (tmp_path / "link").symlink_to(outside)
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "dangling", "folder", "pipe"):
        assert "not a regular file" in refused(400, read, files, "", name)
        assert "not a regular file" in refused(400, files.write, "", name, [b"x"])
    assert outside.read_bytes() == b"outside"
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "key-0a").symlink_to(outside.parent)
    for work, *args in ((files.write, "key-0a", "x", [b"x"]), (read, files, "key-0a", "x")):
        with pytest.raises(FileRefused):
            work(*args)
    assert not (outside.parent / "x").exists()


def test_a_file_that_is_too_large_is_not_read(files):
    files.write("", "a", [b"x" * 1001])
    assert "1001 bytes" in refused(400, read, files, "", "a", 1000)


@pytest.mark.parametrize(
    ("number", "status"), [(errno.ENOSPC, 507), (errno.EDQUOT, 507), (errno.EIO, 500), (errno.EACCES, 500)]
)
@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_a_failure_keeps_the_old_file(files, tmp_path, monkeypatch, call, number, status):
    files.write("", "a", [b"old"])

    def fail(*_, **__):
        raise OSError(number, os.strerror(number), "/srv/somewhere")

    monkeypatch.setattr(os, call, fail)
    message = refused(status, files.write, "", "a", [b"new"])
    monkeypatch.undo()
    assert os.strerror(number) in message
    assert "/srv" not in message
    assert str(tmp_path) not in message
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_a_real_limit_in_the_middle_of_a_file(files, tmp_path):
    files.write("", "a", [b"old"])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        refused(507, files.write, "", "a", [b"x" * 50_000, b"y" * 50_001])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_a_folder_that_is_none_or_closed_stops_the_start(tmp_path):
    with pytest.raises(FileNotFoundError):
        StateFiles(str(tmp_path / "nothing"))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        StateFiles(str(tmp_path / "file"))


def test_leftovers_go_at_the_start_and_only_they(tmp_path):
    (tmp_path / f"{PREFIX}99-left").write_bytes(b"half")
    (tmp_path / "kept").write_bytes(b"whole")
    (tmp_path / "key-0a").mkdir()
    (tmp_path / "key-0a" / f"{PREFIX}99-left").write_bytes(b"half")
    (tmp_path / "key-0a" / "kept").write_bytes(b"whole")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / f"{PREFIX}99-not-ours").write_bytes(b"?")
    root = os.open(tmp_path, os.O_RDONLY)
    written, name = atomic_file.create(root)  # by a process that lives
    StateFiles(str(tmp_path)).close()
    assert sorted(os.listdir(tmp_path)) == sorted([name, "kept", "key-0a", "other"])
    assert os.listdir(tmp_path / "key-0a") == ["kept"]
    assert os.listdir(tmp_path / "other") == [f"{PREFIX}99-not-ours"]
    os.close(written)
    os.close(root)
    StateFiles(str(tmp_path)).close()
    assert name not in os.listdir(tmp_path)


WRITER = """
import sys
from llamad.client.state_files import StateFiles
files = StateFiles(sys.argv[1])
print("ready", flush=True)
n = 0
while True:
    for key, name in (("", "a"), ("key-0a", "b")):
        n += 1
        files.write(key, name, [n.to_bytes(8, "little"), bytes([n % 251]) * (300_000 + n % 7)])
"""


def check_whole(path):
    data = path.read_bytes()
    n = int.from_bytes(data[:8], "little")
    assert data[8:] == bytes([n % 251]) * (300_000 + n % 7)


def test_no_archive_is_ever_half_there_after_a_kill(tmp_path):
    chance = random.Random(7)
    for _ in range(20):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, cwd=os.getcwd()
        )
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        time.sleep(chance.uniform(0, 0.1))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        for path in (tmp_path / "a", tmp_path / "key-0a" / "b"):
            if path.exists():
                check_whole(path)
    check_whole(tmp_path / "a")
    StateFiles(str(tmp_path)).close()
    assert sorted(os.listdir(tmp_path)) == ["a", "key-0a"]
    assert os.listdir(tmp_path / "key-0a") == ["b"]
