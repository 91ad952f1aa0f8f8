"""Starts that fail: at once with a sentence, or later with a server that says why, or that ends for its supervisor."""

import os
import socket
import subprocess
import sys

import pytest
from support.live_daemon import Live

from llamad import exit_codes


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "llamad", *arguments], capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("kind", ["none", "directory", "empty", "text", "pipe"])
def test_what_can_be_no_model_stops_the_start_with_one_line(tmp_path, kind):
    path = tmp_path / "model.gguf"
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind != "none":
        path.write_text("" if kind == "empty" else "<html>404</html>")
    done = run("-m", str(path), "--port", "0")
    assert done.returncode == 1
    words = {"none": "No such file", "directory": "not a regular file", "pipe": "not a regular file"}
    assert words.get(kind, "is not a GGUF file") in done.stderr
    assert done.stderr.startswith(f"llamad: {path}")
    assert done.stderr.count("\n") == 1


@pytest.fixture
def broken(tmp_path):
    """Passes the first look."""
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + b"\xff" * 500)
    return str(path)


def test_a_load_that_fails_ends_the_program_if_asked(broken):
    with Live("--exit-on-load-failure", model=broken, ready=False) as server:
        assert server.wait_exit() == exit_codes.LOAD_FAILED
    assert any("broken.gguf" in line for line in server.lines)
    assert any("--exit-on-load-failure" in line for line in server.lines)


class Supervisor:
    """systemd's end of the notify socket."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(path)
        self._socket.settimeout(30)
        self.env = {"NOTIFY_SOCKET": path}
        self.told: list[str] = []

    def wait(self, line: str) -> None:
        while line not in self.told:
            self.told += self._socket.recv(4096).decode().split("\n")


@pytest.fixture
def supervisor(tmp_path):
    return Supervisor(str(tmp_path / "notify"))


def test_systemd_is_told_when_it_serves_and_when_it_stops(tiny, supervisor):
    with Live("-c", "512", model=tiny, env=supervisor.env) as server:
        supervisor.wait("READY=1")
        assert any(line.startswith("EXTEND_TIMEOUT_USEC=") for line in supervisor.told)
        assert server.client.get("/health").status == 200
    supervisor.wait("STOPPING=1")
    assert server.process.returncode == 0


def test_systemd_sees_a_load_that_fails(broken, supervisor):
    with Live(model=broken, ready=False, env=supervisor.env) as server:
        assert server.wait_exit() == exit_codes.LOAD_FAILED
    assert "READY=1" not in supervisor.told
