"""Starts that fail: at once with a sentence, or later with a server that says why, or that ends for its supervisor."""

import os
import subprocess
import sys

import pytest
from support.live_daemon import Live
from support.systemd.recorder import Recorder

from llamad.systemd import exit_codes


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


def test_systemd_sees_a_load_that_fails(broken, tmp_path):
    with Recorder(str(tmp_path / "notify")) as told:
        with Live(model=broken, ready=False, env=told.env) as server:
            assert server.wait_exit() == exit_codes.LOAD_FAILED
        assert told.all("READY") == []
        assert told.all("STATUS")[-1].startswith("failed: ")
        assert "broken.gguf" in told.all("STATUS")[-1]
