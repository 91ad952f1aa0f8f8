"""Where log lines go: a batch at a time, into a file that can be opened again, and never at a request's expense."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import re
from pathlib import Path

import pytest

from llamad.logs.format import ACCESS_NAME, JsonFormatter, TextFormatter
from llamad.logs.output import FileOutput, Output, is_journal
from llamad.logs.setup import AccessLog

LINES = ['1.2.3.4:5 id-1 "GET /a" 200 1 0.1ms -', '1.2.3.4:5 id-2 "GET /\\x0a" 404 1 0.1ms -']
PLAIN = TextFormatter(False, False, False)


def record(message: str, level: int = logging.INFO, name: str = "llamad.x") -> logging.LogRecord:
    return logging.LogRecord(name, level, "", 0, message, (), None)


def written(fd: int, n: int = 1 << 16) -> str:
    return os.read(fd, n).decode()


@pytest.fixture
def pipe():
    fds = os.pipe()
    yield fds
    for fd in fds:
        os.close(fd)


def write_all(access: AccessLog) -> None:
    async def turn() -> None:
        for line in LINES:
            access.write(line, 0.0)  # the makers below take it as it is

    asyncio.run(turn())


def access_log(*outputs: Output) -> AccessLog:
    return AccessLog(
        list(outputs), lambda line, _: str(line), lambda line, _: json.dumps({"line": line})[1:-1]
    )


@pytest.mark.parametrize("timestamps", [False, True])
@pytest.mark.parametrize("prefix", [False, True])
def test_access_lines_are_what_logging_would_write_in_one_write(pipe, monkeypatch, timestamps, prefix):
    formatter = TextFormatter(timestamps, prefix, colors=True)
    writes, write = [], os.write

    def counted(fd: int, data: bytes) -> int:
        if fd == pipe[1]:
            writes.append(data)
        return write(fd, data)

    monkeypatch.setattr(os, "write", counted)
    write_all(access_log(Output(pipe[1], formatter)))
    made = [formatter.format(record(line, name=ACCESS_NAME)) for line in LINES]
    stamp = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} ")
    lines = written(pipe[0]).splitlines()
    assert [bool(stamp.match(line)) for line in lines] == [timestamps] * 2
    assert [stamp.sub("", line) for line in lines] == [stamp.sub("", line) for line in made]
    assert len(writes) == 1


def test_each_output_has_its_own_format(pipe, tmp_path):
    text = FileOutput(str(tmp_path / "log"), PLAIN, truncate=True)
    write_all(access_log(Output(pipe[1], JsonFormatter()), text))
    rows = [json.loads(line) for line in written(pipe[0]).splitlines()]
    assert [row.pop("line") for row in rows] == LINES
    assert all(row.pop("time") > 0 for row in rows)
    assert rows == [{"level": "info", "name": "llamad.access"}] * 2
    assert (tmp_path / "log").read_text().splitlines() == LINES


def test_an_output_that_fails_costs_the_others_nothing(pipe):
    full = os.open("/dev/full", os.O_WRONLY)
    write_all(access_log(Output(full, PLAIN), Output(pipe[1], PLAIN)))
    os.close(full)
    assert written(pipe[0]).splitlines() == LINES


def test_lines_that_were_lost_are_counted(tmp_path, monkeypatch):
    output = FileOutput(str(tmp_path / "log"), PLAIN, truncate=True)
    output.handle(record("one"))
    write, n_room = os.write, 4

    def almost_full(fd: int, data: bytes) -> int:
        nonlocal n_room
        if not n_room:
            raise OSError(errno.ENOSPC, "No space left on device")
        n = write(fd, data[:n_room])
        n_room -= n
        return n

    monkeypatch.setattr(os, "write", almost_full)
    output.handle(record("another"))
    output.handle(record("a third"))
    monkeypatch.setattr(os, "write", write)
    output.handle(record("four"))
    output.handle(record("five"))
    told = "2 lines could not be written here and are lost"
    assert (tmp_path / "log").read_text() == f"one\nanot\n{told}\nfour\nfive\n"


def test_a_file_is_opened_again_under_its_name(tmp_path):
    path = tmp_path / "log"
    path.write_text("of yesterday\n")
    output = FileOutput(str(path), PLAIN, truncate=False)
    output.handle(record("one"))
    path.rename(tmp_path / "log.1")
    output.handle(record("two"))
    output.reopen()
    output.handle(record("three"))
    output.reopen()  # nobody moved it: it goes on
    output.handle(record("four"))
    assert (tmp_path / "log.1").read_text() == "of yesterday\none\ntwo\n"
    assert path.read_text() == "three\nfour\n"


def test_a_file_that_cannot_be_opened_again_leaves_the_old_one(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    output = FileOutput(str(folder / "log"), PLAIN, truncate=True)
    folder.rename(tmp_path / "old")
    n_open = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        output.reopen()
    output.handle(record("still here"))
    assert (tmp_path / "old" / "log").read_text() == "still here\n"
    assert len(os.listdir("/proc/self/fd")) == n_open


def test_a_file_is_found_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = FileOutput("log", PLAIN, truncate=True)
    monkeypatch.chdir("/")
    output.reopen()
    output.handle(record("here"))
    assert Path(tmp_path / "log").read_text() == "here\n"


def test_the_journals_stream_is_known_by_its_numbers(pipe):
    status = os.fstat(pipe[1])
    assert is_journal(pipe[1], {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"})
    assert not is_journal(pipe[1], {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino + 1}"})
    assert not is_journal(pipe[1], {})
    assert not is_journal(-1, {"JOURNAL_STREAM": "1:1"})


def test_a_log_file_is_not_for_everyone(tmp_path: Path) -> None:
    """Nor is the one that is opened in its place."""
    path = tmp_path / "x.log"
    before = os.umask(0)
    try:
        output = FileOutput(str(path), PLAIN, truncate=False)
        assert path.stat().st_mode & 0o777 == 0o640
        path.rename(tmp_path / "old.log")
        output.reopen()
        assert path.stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)
