"""The log of the real program: files that are rotated, a disk that is full, the journal's stream."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support.live_daemon import Live, engines

N_ROTATIONS = 5
WAIT_SECONDS = 60


def wait_until(condition) -> None:
    t_end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < t_end
        time.sleep(0.005)


def logged(*flags: str, env: dict[str, str] | None = None) -> list[str]:
    """What --log-test writes to a pipe that `env` may call the journal's."""
    done = subprocess.run(
        [sys.executable, "-m", "llamad", "--log-test", "-v", *flags],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
        check=True,
        timeout=WAIT_SECONDS,
    )
    return done.stderr.splitlines()


def in_journal(*flags: str) -> list[str]:
    """The same with the pipe as JOURNAL_STREAM, which only the shell that inherits it can name."""
    script = 'JOURNAL_STREAM=$(stat -L -c %d:%i /proc/$$/fd/2) exec "$@"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", sys.executable, "-m", "llamad", "--log-test", "-v", *flags],
        stderr=subprocess.PIPE,
        text=True,
        check=True,
        timeout=WAIT_SECONDS,
    )
    return done.stderr.splitlines()


def test_a_rotation_under_load_loses_no_line(tiny, tmp_path):
    """The engine gets the signal, too: `systemctl kill` sends it to every process of the service."""
    path = tmp_path / "llamad.log"
    with Live("-c", "512", "--log-file", str(path), model=tiny) as server:
        sent: list[str] = []
        stopping = threading.Event()

        def ask(name: str) -> None:
            while not stopping.is_set():
                id = f"{name}-{len(sent)}"
                sent.append(id)
                server.client.request("GET", "/props", headers={"X-Request-Id": id})

        askers = [threading.Thread(target=ask, args=(name,)) for name in "ab"]
        for one in askers:
            one.start()
        for i in range(N_ROTATIONS):
            n_before = len(sent)
            wait_until(lambda n=n_before: len(sent) > n + 20)
            path.rename(f"{path}.{i}")
            for pid in (*engines(server.process.pid), server.process.pid):
                os.kill(pid, signal.SIGUSR1)
            wait_until(path.exists)
        stopping.set()
        for one in askers:
            one.join()
        assert server.client.complete("x", n_predict=1)
    texts = [file.read_text() for file in sorted(tmp_path.iterdir())]
    assert len(texts) == N_ROTATIONS + 1
    assert all(text.endswith("\n") for text in texts)
    lines = [line for text in texts for line in text.splitlines() if '"GET /props" 200' in line]
    assert sorted(line.split()[5] for line in lines) == sorted(sent)


def test_a_file_that_cannot_be_opened_again_is_an_error_in_the_log(tiny, tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    with Live("-c", "512", "--log-file", str(folder / "log"), model=tiny) as server:
        folder.rename(tmp_path / "old")
        server.process.send_signal(signal.SIGUSR1)
        server.wait_line(
            "E log: the log file cannot be reopened, so the old one is still used: .*No such file"
        )
        assert server.client.get("/props").status == 200
        wait_until(lambda: '"GET /props" 200' in (tmp_path / "old" / "log").read_text())


def test_without_a_file_the_signal_changes_nothing(live):
    live.process.send_signal(signal.SIGUSR1)
    live.wait_line("I log: SIGUSR1 reopens the log file, but there is no --log-file")
    assert live.client.get("/props").status == 200


def test_a_full_disk_costs_no_request(tiny):
    with Live("-c", "512", "--log-file", "/dev/full", model=tiny) as server:
        for _ in range(3):
            assert server.client.complete("x", n_predict=1)
        server.wait_line('"POST /completion" 200')


def test_lines_for_the_journal_have_priorities_and_no_time():
    levels = ["debug", "info", "warning", "error", "critical"]
    numbers = [7, 6, 4, 3, 2]
    prefixes = [
        f"<{n}>{level[0].upper()} test: a line of level {level}"
        for n, level in zip(numbers, levels, strict=True)
    ]
    assert in_journal() == prefixes
    assert all(
        line.startswith(f"<{n}>20") for n, line in zip(numbers, in_journal("--log-timestamps"), strict=True)
    )
    rows = in_journal("--log-format", "json")
    assert [line[:4] for line in rows] == [f"<{n}>{{" for n in numbers]
    assert [json.loads(line[3:])["level"] for line in rows] == levels


@pytest.mark.parametrize("stream", ["", "1:2"])
def test_other_streams_get_no_priorities(stream):
    assert [json.loads(line)["level"] for line in logged(env={"JOURNAL_STREAM": stream})][-1] == "critical"


def test_a_log_file_gets_no_priorities(tmp_path):
    path = Path(tmp_path / "log")
    in_journal("--log-file", str(path))
    assert len([json.loads(line) for line in path.read_text().splitlines()]) == 5
