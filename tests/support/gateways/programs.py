"""Several llamads behind a real gateway: started from the files in deploy/, on ports of their own."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.http_client import Client
from support.live_daemon import Live

DEPLOY = Path(__file__).parents[3] / "deploy"
WAIT_SECONDS = 20
KEY = {"Authorization": "Bearer k", "Content-Type": "application/json"}
FLAGS = ("-np", "8", "-c", "8192", "--alias", "tiny", "--api-key", "k", "--trusted-proxies", "127.0.0.1")


def program(name: str) -> str:
    """Its path; without it the test is skipped."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def until(condition: Callable[[], bool], what: str) -> None:
    t_end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < t_end, f"waited in vain for {what}"
        time.sleep(0.02)


class Gateway:
    """A running program and a client of it."""

    def __init__(self, command: list[str], port: int, log: Path, ready: str = "/v1/models") -> None:
        self.log = log
        self._ready = ready
        with log.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        self.client = Client("127.0.0.1", port, KEY)
        until(self._answers, f"the gateway:\n{log.read_text()}")

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.client.get(self._ready).status == 200
        except OSError:
            return False

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def haproxy(backends: list[Live], folder: Path) -> Gateway:
    path, port = program("haproxy"), free_port()
    text = (DEPLOY / "haproxy" / "haproxy.cfg").read_text()
    text = text.replace("bind :8000", f"bind 127.0.0.1:{port}")
    for i, backend in enumerate(backends):
        text = text.replace(f"10.0.0.{i + 1}:8080", f"127.0.0.1:{backend.client.port}")
    assert "10.0.0." not in text
    (folder / "haproxy.cfg").write_text(text)
    return Gateway([path, "-db", "-f", str(folder / "haproxy.cfg")], port, folder / "haproxy.log")


def nginx(backends: list[Live], folder: Path) -> Gateway:
    path, port = program("nginx"), free_port()
    text = (DEPLOY / "nginx" / "llamad.conf").read_text().replace("listen 8000", f"listen 127.0.0.1:{port}")
    for i, backend in enumerate(backends):
        text = text.replace(f"10.0.0.{i + 1}:8080", f"127.0.0.1:{backend.client.port}")
    assert "10.0.0.1:" not in text
    (folder / "llamad.conf").write_text(text)
    paths = "".join(
        f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    whole = (
        f"daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr;"
        f" events {{}} http {{ access_log off; {paths} include {folder}/llamad.conf; }}"
    )
    (folder / "nginx.conf").write_text(whole)
    command = [path, "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]
    return Gateway(command, port, folder / "nginx.log")


def smg(backends: list[Live], folder: Path) -> Gateway:
    program("smg")
    port = free_port()
    urls = [f"http://127.0.0.1:{backend.client.port}" for backend in backends]
    where = ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port())]
    command = [str(DEPLOY / "smg" / "run.sh"), *where, "--worker-urls", *urls]
    return Gateway(command, port, folder / "smg.log", "/readiness")


class Load:
    """Clients that ask one after the other until they are told to stop; `failed` is what was no whole answer."""

    def __init__(self, client: Client, n_clients: int = 4) -> None:
        self.n_done = 0
        self.failed: list[str] = []
        self._client = client
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(n_clients)]

    def _run(self, i: int) -> None:
        n = 0
        while not self._is_over.is_set():
            n += 1
            try:
                said = {"role": "user", "content": f"{i} {n} hello"}
                self._ask({"model": "tiny", "messages": [said], "max_tokens": 8})
                self.n_done += 1
            except Exception as error:
                self.failed.append(repr(error))

    def _ask(self, body: dict[str, Any]) -> None:
        connection = http.client.HTTPConnection(self._client.host, self._client.port, timeout=WAIT_SECONDS)
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body).encode(), KEY)
            response = connection.getresponse()
            data = response.read()
            assert response.status == 200, data
            assert json.loads(data)["usage"]["completion_tokens"] > 0
        finally:
            connection.close()

    def wait_more(self, n: int) -> None:
        target = self.n_done + n
        until(lambda: self.n_done >= target, f"{n} more answers; failed: {self.failed[:3]}")

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(WAIT_SECONDS)
