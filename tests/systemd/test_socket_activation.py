"""Sockets that a supervisor holds: clients wait there while daemons come and go."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.http_client import TIMEOUT, Client
from support.live_daemon import WAIT_SECONDS, engines, until
from support.systemd.holder import PASS_ON, Holder
from support.systemd.recorder import Recorder

from llamad.http import activation
from llamad.systemd import exit_codes

FLAGS = ("-np", "4", "-c", "4096", "--drain-seconds", "60")
ASK = {"prompt": "Once upon a time", "n_predict": 3, "ignore_eos": True}


def sockets_of(pid: int) -> set[int]:
    """Inodes of its sockets."""
    inodes = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            inodes.add(int(target[8:-1]) if target.startswith("socket:[") else -1)
    return inodes


class UnixClient(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT)
        self.sock.connect(self._path)


def is_listening(path: str) -> bool:
    """A socket's file is there a moment before anyone listens at it."""
    with socket.socket(socket.AF_UNIX) as sock:
        return sock.connect_ex(path) == 0


def status_of(connection: http.client.HTTPConnection, path: str = "/health") -> int:
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def test_a_client_that_comes_early_waits_until_the_model_serves(tiny: str, tmp_path: Path) -> None:
    # More sockets than an engine has descriptors of its own, which would hide one that it inherited.
    with Holder("", *(str(tmp_path / f"{i}.sock") for i in range(8))) as holder:
        early = socket.create_connection(("127.0.0.1", holder.port), TIMEOUT)
        early.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        with holder.start(*FLAGS, model=tiny) as server:
            assert early.recv(64).startswith(b"HTTP/1.1 200 ")  # not a 503 that says "loading"
            assert holder.inodes() <= sockets_of(server.process.pid)
            (engine,) = engines(server.process.pid)
            assert not holder.inodes() & sockets_of(engine), "a child has the listening socket"
            names = Path(f"/proc/{engine}/environ").read_bytes()
            assert b"LISTEN_" not in names
            warned = [line for line in server.lines if "--port" in line]
            assert len(warned) == 1
            assert "the sockets are inherited" in warned[0]
        assert server.process.returncode == exit_codes.OK
        early.close()
        # The socket is not the daemon's to close.
        socket.create_connection(("127.0.0.1", holder.port), TIMEOUT).close()


def test_a_unix_socket_stays_where_it_is(tiny: str, tmp_path: Path) -> None:
    path = str(tmp_path / "llamad.sock")
    with Holder("", path) as holder:
        before = os.stat(path)
        for _ in range(2):
            with holder.start(*FLAGS, model=tiny) as server:
                assert server.wait_line(r"listening on .*unix:(\S+)")[1] == path
                assert status_of(UnixClient(path)) == 200
                assert server.client.get("/health").status == 200
            assert server.process.returncode == exit_codes.OK
            assert os.stat(path).st_ino == before.st_ino


class Load:
    """Clients that ask without a pause: with a connection for each request, or with one as long as it lasts. `failed`
    has what went wrong; every answer counts."""

    def __init__(self, port: int, n_clients: int) -> None:
        self._port = port
        self.failed: list[str] = []
        self.n_answers = [0] * n_clients
        self.n_retries = 0
        self._is_over = threading.Event()
        self._kept: dict[int, http.client.HTTPConnection] = {}
        kinds: list[Callable[[int], None]] = [self._ask_fresh, self._ask_kept]
        self._threads = [
            threading.Thread(target=self._run, args=(kinds[i % 2], i), daemon=True) for i in range(n_clients)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, ask: Callable[[int], None], i: int) -> None:
        while not self._is_over.is_set():
            try:
                ask(i)
            except Exception as error:
                self.failed.append(repr(error))
                return

    def _judge(self, i: int, answer: http.client.HTTPResponse) -> None:
        body = answer.read()
        if answer.status == 200 and json.loads(body)["tokens_predicted"] == ASK["n_predict"]:
            self.n_answers[i] += 1
        else:
            self.failed.append(f"{answer.status} {body[:200]!r}")

    def _ask_fresh(self, i: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT)
        connection.request("POST", "/completion", json.dumps(ASK))
        self._judge(i, connection.getresponse())
        connection.close()

    def _ask_kept(self, i: int) -> None:
        is_used = i in self._kept
        connection = self._kept.setdefault(
            i, http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT)
        )
        try:
            connection.request("POST", "/completion", json.dumps(ASK))
            answer = connection.getresponse()
        except (http.client.RemoteDisconnected, ConnectionError):
            # An idle connection may close at any time; what was not answered is asked again, as clients do.
            del self._kept[i]
            connection.close()
            assert is_used, "a new connection was closed without an answer"
            self.n_retries += 1
            return
        is_last = answer.getheader("Connection", "") == "close"
        self._judge(i, answer)
        if is_last:
            self._kept.pop(i).close()

    def wait_more(self, n: int) -> None:
        """Until each client has so many more answers."""
        wanted = [already + n for already in self.n_answers]
        t_end = time.monotonic() + 2 * WAIT_SECONDS
        while any(have < want for have, want in zip(self.n_answers, wanted, strict=True)):
            assert not self.failed, self.failed
            assert time.monotonic() < t_end, (self.n_answers, wanted)
            time.sleep(0.01)

    def end(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive()


def test_restarts_under_load_refuse_nobody_and_cut_no_stream(tiny: str) -> None:
    """Three daemons in turn on one socket, as `systemctl restart` does it."""
    with Holder() as holder:
        server = holder.start(*FLAGS, model=tiny)
        load = Load(holder.port, 6)
        try:
            for _ in range(2):
                load.wait_more(2)
                body = {"prompt": "x", "n_predict": 400, "ignore_eos": True}
                stream = server.client.open_stream(body)
                seen = stream.recv(4096)
                server.signal(signal.SIGTERM)
                while data := stream.recv(65536):
                    seen += data
                assert b'"stop":true' in seen
                assert seen.endswith(b"0\r\n\r\n")
                assert server.wait_exit() == exit_codes.OK
                server = holder.start(*FLAGS, model=tiny)
            load.wait_more(2)
        finally:
            load.end()
            with server:
                pass
        assert load.failed == []
        assert server.process.returncode == exit_codes.OK


def test_an_accepted_client_is_served_in_the_drain_and_a_new_one_by_the_next_daemon(tiny: str) -> None:
    with Holder() as holder:
        with holder.start(*FLAGS, model=tiny) as server:
            stream = server.client.open_stream({"prompt": "x", "n_predict": -1, "ignore_eos": True})
            stream.recv(4096)
            idle = [http.client.HTTPConnection("127.0.0.1", holder.port, timeout=TIMEOUT) for _ in range(2)]
            assert [status_of(connection, "/props") for connection in idle] == [200, 200]
            server.signal(signal.SIGTERM)
            server.wait_line("draining")
            # What is said of the state is the truth, and requests are served, for the last time.
            idle[0].request("GET", "/health")
            answer = idle[0].getresponse()
            assert (answer.status, json.load(answer)["status"]) == (503, "draining")
            idle[1].request("POST", "/completion", json.dumps(ASK))
            answer = idle[1].getresponse()
            assert (answer.status, answer.getheader("Connection")) == (200, "close")
            answer.read()
            late = socket.create_connection(("127.0.0.1", holder.port), TIMEOUT)
            late.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert stream.recv(4096), "the first daemon is still there"
            late.settimeout(0.3)
            with pytest.raises(TimeoutError):
                late.recv(64)
            late.settimeout(TIMEOUT)
            stream.close()
            assert server.wait_exit() == exit_codes.OK
        with holder.start(*FLAGS, model=tiny):
            assert late.recv(64).startswith(b"HTTP/1.1 200 ")
            late.close()


def test_a_load_that_fails_leaves_clients_to_the_next_daemon(tiny: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\xff" * 500)
    with Holder() as holder, Recorder() as told:
        early = socket.create_connection(("127.0.0.1", holder.port), TIMEOUT)
        early.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        done = passed(holder.sockets, "-m", str(broken), env=told.env)
        assert done.returncode == exit_codes.LOAD_FAILED, done.stderr
        told.wait_for("STATUS", "failed: ")
        assert told.all("READY") == []
        # Nobody supervises this one: it stays, and says why.
        with holder.start(model=str(broken), ready=False):
            assert early.recv(64).startswith(b"HTTP/1.1 500 ")
        early.close()


@pytest.mark.skipif(shutil.which("systemd-socket-activate") is None, reason="no systemd-socket-activate")
def test_under_systemd_socket_activate(tiny: str, tmp_path: Path) -> None:
    path = str(tmp_path / "llamad.sock")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    has_ipv6 = os.path.exists("/proc/net/if_inet6")
    listen = [f"127.0.0.1:{port}", path, *([f"[::1]:{port}"] if has_ipv6 else [])]
    process = subprocess.Popen(
        [
            "systemd-socket-activate",
            *(f"--listen={address}" for address in listen),
            "--fdname=web:local:web",
            *(sys.executable, "-m", "llamad", "-m", tiny, "-c", "512", "-t", "1", "--log-format", "text"),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: is_listening(path))
        assert status_of(UnixClient(path)) == 200  # the first connection starts it
        assert Client("127.0.0.1", port).get("/health").status == 200
        if has_ipv6:
            assert Client("::1", port).get("/health").status == 200
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=WAIT_SECONDS)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == exit_codes.OK
    assert f"listening on http://127.0.0.1:{port}, unix:{path}" in log
    assert os.path.exists(path), "its file is systemd's"


def passed(
    sockets: list[socket.socket], *flags: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The program with these sockets, until it ends by itself."""
    fds = [sock.fileno() for sock in sockets]
    command = [sys.executable, "-c", PASS_ON, ",".join(map(str, fds)), sys.executable, "-m", "llamad", *flags]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        pass_fds=fds,
        env={**os.environ, **(env or {})},
    )


def wrong_sockets(kind: str) -> list[socket.socket]:
    listening = socket.create_server(("127.0.0.1", 0))
    if kind == "datagram":
        other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        other.bind(("127.0.0.1", 0))
    elif kind == "bound":
        other = socket.socket()
        other.bind(("127.0.0.1", 0))
    elif kind == "connection":
        other = socket.create_connection(listening.getsockname())
    else:
        other = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)
    return [listening, other]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("datagram", "is not a stream socket; llamad needs ListenStream="),
        ("bound", "does not listen; llamad needs a socket unit with Accept=no"),
        ("connection", "does not listen"),
        ("netlink", "is neither a TCP nor a Unix socket"),
    ],
)
def test_a_socket_of_the_wrong_kind_stops_the_start(tiny: str, kind: str, words: str) -> None:
    sockets = wrong_sockets(kind)
    done = passed(sockets, "-m", tiny, "--log-disable", env={"LISTEN_FDNAMES": "web:odd"})
    assert done.returncode == exit_codes.LISTEN_FAILED
    assert f"llamad: the inherited descriptor 4 (odd) {words}" in done.stderr
    assert done.stderr.count("\n") == 1
    for sock in sockets:
        sock.close()


@pytest.mark.parametrize(
    ("count", "words"),
    [("many", "LISTEN_FDS='many' is not a number"), ("900", "LISTEN_FDS=900, but descriptor")],
)
def test_variables_that_are_wrong_stop_the_start(tiny: str, count: str, words: str) -> None:
    code = "import os, sys; os.environ['LISTEN_PID'] = str(os.getpid()); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", code, sys.executable, "-m", "llamad", "-m", tiny]
    env = {**os.environ, "LISTEN_FDS": count}
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, env=env)
    assert done.returncode == exit_codes.LISTEN_FAILED
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_sockets_of_another_process_are_left_alone_and_not_passed_on() -> None:
    environ = {"LISTEN_PID": "1", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:b", "PATH": "/bin"}
    assert activation.take(environ) == []
    assert environ == {"PATH": "/bin"}
