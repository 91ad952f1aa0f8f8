"""The gateways HAProxy, nginx and smg: starts them with the files in deploy/, adds a server while they run, and stops
them. For `bench gateways` and the tests of deploy/. Only addresses and paths differ from those files.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.client import Address
from bench.errors import BenchError
from bench.programs import HOST, free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
WAIT_SECONDS = 300
ADMIN_KEY = "only-for-this-run"


def find(name: str) -> str | None:
    """Return the program's path: beside this Python, on PATH, or where Debian puts servers; None if there is none."""
    places = (str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin")
    return shutil.which(name, path=os.pathsep.join(places))


def until(condition: Callable[[], bool], what: str) -> None:
    t_end = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > t_end:
            raise BenchError(f"waited too long for {what}")
        time.sleep(0.02)


class Gateway(ABC):
    """A running gateway in front of the llamads on `ports`. The constructor waits until it is ready."""

    name: str
    ready_path = "/v1/models"

    def __init__(self, ports: Sequence[int], folder: Path) -> None:
        path = find(self.name)
        if path is None:
            raise BenchError(f"{self.name} is not installed")
        self.path, self.folder = path, folder
        self.address: Address = (HOST, free_port())
        self._log = folder / f"{self.name}.log"
        command = self._command(ports)
        with self._log.open("wb") as out:
            # The start script looks for smg on PATH.
            env = os.environ | {
                "PATH": f"{Path(path).parent}{os.pathsep}{os.environ['PATH']}",
                "SMG_ADMIN_KEY": ADMIN_KEY,
            }
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env)
        try:
            until(self._answers, f"{self.name} to answer")
        except BaseException:
            self.__exit__()
            raise

    @abstractmethod
    def _command(self, ports: Sequence[int]) -> list[str]: ...

    @abstractmethod
    def add_server(self, ports: Sequence[int]) -> None:
        """Use the servers on `ports`, of which the last is new, without a restart."""

    def _answers(self) -> bool:
        if self.process.poll() is not None:
            raise BenchError(f"{self.name} ended: {self._log.read_text(errors='replace')[-2000:]}")
        connection = http.client.HTTPConnection(*self.address, timeout=WAIT_SECONDS)
        try:
            connection.request("GET", self.ready_path)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(1)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def with_servers(text: str, ports: Sequence[int]) -> str:
    """Return the configuration with a line for each of `ports` on this machine, instead of 10.0.0.1 and 10.0.0.2."""
    out = []
    for line in text.splitlines():
        if "10.0.0.1:8080" in line:
            for number, port in enumerate(ports, 1):
                out.append(
                    line.replace("10.0.0.1:8080", f"{HOST}:{port}").replace("llamad1", f"llamad{number}")
                )
        elif "10.0.0.2:8080" not in line:
            out.append(line)
    return "\n".join(out) + "\n"


class Haproxy(Gateway):
    name = "haproxy"
    extra = ""  # more words for every server

    def _command(self, ports: Sequence[int]) -> list[str]:
        # It is not in `folder`, because a socket's path must be short.
        self._sockets = tempfile.TemporaryDirectory(prefix="haproxy")
        text = with_servers((DEPLOY / "haproxy" / "haproxy.cfg").read_text(), ports)
        text = text.replace("bind :8000", f"bind {HOST}:{self.address[1]}")
        text = text.replace(":8001", f":{free_port()}")
        text = text.replace("/run/haproxy", self._sockets.name)
        text = text.replace("default-server check", f"default-server check {self.extra}")
        (self.folder / "haproxy.cfg").write_text(text)
        return [self.path, "-W", "-f", str(self.folder / "haproxy.cfg")]

    def add_server(self, ports: Sequence[int]) -> None:
        name = f"llamads/llamad{len(ports)}"
        words = f"{HOST}:{ports[-1]} check inter 1s fall 2 rise 1 maxconn 1000 {self.extra}"
        reply = self._tell(f"add server {name} {words}")
        if "New server registered" not in reply:
            raise BenchError(f"haproxy does not accept a server: {reply}")
        self._tell(f"enable health {name}")
        self._tell(f"enable server {name}")

    def _tell(self, command: str) -> str:
        """Send a command to its runtime API; return the reply."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(f"{self._sockets.name}/admin.sock")
            sock.sendall(command.encode() + b"\n")
            return b"".join(iter(lambda: sock.recv(65536), b"")).decode()

    def __exit__(self, *given: object) -> None:
        super().__exit__(*given)
        self._sockets.cleanup()


class ProxyProtocolHaproxy(Haproxy):
    """Sends clients' addresses to the servers in the PROXY protocol, and connects from another address."""

    source = "127.0.0.2"
    extra = f"send-proxy-v2 source {source}"


class Nginx(Gateway):
    name = "nginx"

    def _command(self, ports: Sequence[int]) -> list[str]:
        self._configure(ports)
        folder = self.folder
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        paths = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
        whole = (
            f"daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr;"
            f" events {{}} http {{ access_log off; {paths} include {folder}/llamad.conf; }}"
        )
        (folder / "nginx.conf").write_text(whole)
        return [self.path, "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]

    def _configure(self, ports: Sequence[int]) -> None:
        text = with_servers((DEPLOY / "nginx" / "llamad.conf").read_text(), ports)
        text = text.replace("listen 8000", f"listen {HOST}:{self.address[1]}")
        (self.folder / "llamad.conf").write_text(text)

    def add_server(self, ports: Sequence[int]) -> None:
        self._configure(ports)
        self.process.send_signal(signal.SIGHUP)  # what `nginx -s reload` sends


class Smg(Gateway):
    name = "smg"
    ready_path = "/readiness"

    def _command(self, ports: Sequence[int]) -> list[str]:
        where = ["--host", HOST, "--port", str(self.address[1]), "--prometheus-port", str(free_port())]
        urls = [f"http://{HOST}:{port}" for port in ports]
        return [str(DEPLOY / "smg" / "run.sh"), *where, "--worker-urls", *urls]

    def add_server(self, ports: Sequence[int]) -> None:
        connection = http.client.HTTPConnection(*self.address, timeout=WAIT_SECONDS)
        try:
            body = json.dumps({"url": f"http://{HOST}:{ports[-1]}"})
            headers = {"Authorization": f"Bearer {ADMIN_KEY}", "Content-Type": "application/json"}
            connection.request("POST", "/workers", body, headers)
            answer = connection.getresponse()
            if answer.status != 202:
                raise BenchError(f"smg does not accept a server: {answer.status} {answer.read()[:400]!r}")
        finally:
            connection.close()


GATEWAYS: dict[str, type[Gateway]] = {one.name: one for one in (Haproxy, Nginx, Smg)}
