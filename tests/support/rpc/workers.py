"""RPC workers for tests: the real program, and endpoints that only pretend to be one."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

from llamad.models.rpc_probe import VERSION, WorkerError, probe
from support.live_daemon import WAIT_SECONDS


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class RpcWorker:
    """`llamad rpc-server` with one thread, at the same endpoint after every start; `within` are the words before its
    command."""

    def __init__(self, host: str = "127.0.0.1", within: Sequence[str] = ()) -> None:
        self.endpoint = f"{host}:{free_port()}"
        self._within = within
        self.start()

    def start(self) -> None:
        host, _, port = self.endpoint.rpartition(":")
        flags = ["-H", host, "-p", port, "-t", "1"]
        # It execs twice, so that the process is the worker.
        self.process = subprocess.Popen(
            [*self._within, sys.executable, "-m", "llamad", "rpc-server", *flags],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        t_end = time.monotonic() + WAIT_SECONDS
        while not self._answers():
            assert self.process.poll() is None, "the worker has ended"
            assert time.monotonic() < t_end, "the worker does not answer"
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            asyncio.run(probe(self.endpoint))
        except WorkerError:
            return False
        return True

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()

    def __enter__(self) -> RpcWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


Behaviour = Callable[[socket.socket, int], None]


class Pretender:
    """Listens at `endpoint` and treats every connection as `behave` does, which gets its number, too."""

    def __init__(self, behave: Behaviour, port: int = 0) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.n_connections = 0
        self._behave = behave
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection, self.n_connections), daemon=True).start()
            self.n_connections += 1

    def _serve(self, connection: socket.socket, number: int) -> None:
        with connection:
            try:
                self._behave(connection, number)
            except OSError:
                pass  # the client has gone

    def __enter__(self) -> Pretender:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def silent(connection: socket.socket, _: int) -> None:
    while connection.recv(4096):
        pass


def closes(connection: socket.socket, _: int) -> None:
    connection.recv(4096)


def garbage(connection: socket.socket, _: int) -> None:
    while True:
        connection.sendall(os.urandom(4096))


def huge(connection: socket.socket, _: int) -> None:
    connection.sendall(struct.pack("<Q", 2**63))
    while True:
        connection.sendall(bytes(1 << 16))


def drips(connection: socket.socket, _: int) -> None:
    while True:
        connection.sendall(bytes(1))
        time.sleep(0.2)


def http(connection: socket.socket, _: int) -> None:
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def worker(*, version: Sequence[int] = (*VERSION, 0), n_devices: int = 1) -> Behaviour:
    """Speaks the protocol as far as a probe does."""

    def behave(connection: socket.socket, _: int) -> None:
        file = connection.makefile("rb")
        while head := file.read(9):
            command, n = struct.unpack("<BQ", head)
            file.read(n)
            reply = {
                14: bytes([*version, 0]) + bytes(24),
                15: struct.pack("<I", n_devices),
                11: struct.pack("<QQ", 1 << 30, 2 << 30),
            }[command]
            connection.sendall(struct.pack("<Q", len(reply)) + reply)

    return behave


def fades(connection: socket.socket, number: int) -> None:
    """A worker that passes the probe and then says nothing any more."""
    (worker() if number == 0 else silent)(connection, number)


def hangs_up(connection: socket.socket, number: int) -> None:
    """A worker for probes only, which come before every start of an engine."""
    (worker() if number % 2 == 0 else closes)(connection, number)
