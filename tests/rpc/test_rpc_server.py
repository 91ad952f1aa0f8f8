"""`llamad rpc-server`: llama.cpp's program with its own flags and its own exit status."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.live_daemon import WAIT_SECONDS
from support.rpc.workers import RpcWorker


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "llamad", "rpc-server", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60)


def test_its_help() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert done.stderr.startswith("Usage: llamad rpc-server [options]")
    assert "--cache" in done.stderr


def test_libraries_of_the_current_directory_are_not_loaded(tmp_path: Path) -> None:
    """ggml opens every backend that it finds there, such as those of another llama.cpp that was built in it."""
    source = tmp_path / "backend.c"
    source.write_text(
        "#include <stdlib.h>\n__attribute__((constructor)) static void loaded(void) { exit(77); }\n"
    )
    library = tmp_path / "libggml-cpu-other.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)

    done = run("-d", "NOPE0", cwd=tmp_path)

    assert done.returncode == 1, done.stderr


def test_its_exit_status_is_passed_on() -> None:
    done = run("-d", "NOPE0")
    assert done.returncode == 1
    assert "unknown device: NOPE0" in done.stderr
    assert "private network" not in done.stderr


@pytest.mark.parametrize(
    ("host", "is_warned"),
    [("0.0.0.0", True), ("8.8.8.8", True), ("192.168.7.7", False), ("127.0.0.1", False)],
)
def test_an_address_that_is_not_private_is_warned_of(host: str, is_warned: bool) -> None:
    done = run("-d", "NOPE0", "-H", host)
    assert ("the RPC protocol has no authentication" in done.stderr) is is_warned


def timers(port: int) -> set[str]:
    """Of this machine's TCP connections from a local port: "02" is keep-alive."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[5][:2] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "01"}


def test_clients_that_vanish_are_noticed() -> None:
    """The worker's own side of each connection is kept alive; the client's here is not."""
    with RpcWorker() as worker:
        port = int(worker.endpoint.rpartition(":")[2])
        t_end = time.monotonic() + WAIT_SECONDS
        while True:
            with socket.create_connection(("127.0.0.1", port)):
                if "02" in timers(port):
                    break
            assert time.monotonic() < t_end, "its connections are not kept alive"
            time.sleep(0.05)
