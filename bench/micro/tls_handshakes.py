"""Measures how late an event loop is during TLS handshakes, with llamad's listener and with uvloop's own TLS.

A server process runs llamad's HTTP layer over one or the other. A task there sleeps for a millisecond again and again,
and records how much later it wakes; a stream's tokens would be as late. Client threads connect, do the handshake, send
a request and close, --rate times per second. The program `openssl` makes the certificate, with an RSA key of --bits.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import uvloop

from bench.errors import BenchError
from bench.micro.http_servers import App, default_limits
from llamad.http.connection import Connection
from llamad.http.cors import Cors
from llamad.http.server import HttpServer

KINDS = ("llamad", "uvloop")
N_CLIENTS = 32
REQUEST = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


async def _late(times: list[float]) -> None:
    while True:
        t_due = time.monotonic() + 0.001
        await asyncio.sleep(0.001)
        times.append((time.monotonic() - t_due) * 1e3)


async def _serve(kind: str, folder: Path) -> None:
    """Serve until SIGTERM, then print the lateness since SIGUSR1 as JSON."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    port = listener.getsockname()[1]
    loop, end, times = asyncio.get_running_loop(), asyncio.Event(), list[float]()
    server = HttpServer(App(), default_limits(), Cors(), None, context if kind == "llamad" else None)
    if kind == "llamad":
        listener.close()
        await server.listen(["127.0.0.1"], port)
    else:
        await loop.create_server(lambda: Connection(server), sock=listener, ssl=context)
    loop.add_signal_handler(signal.SIGUSR1, times.clear)
    loop.add_signal_handler(signal.SIGTERM, end.set)
    late = asyncio.create_task(_late(times))
    print(port, flush=True)
    await end.wait()
    late.cancel()
    print(json.dumps(times), flush=True)
    os._exit(0)  # without messages about unfinished handshakes


class Clients:
    """Threads that connect at a fixed rate, and count finished handshakes."""

    def __init__(self, port: int, rate: float) -> None:
        self.n_done = 0
        self._port = port
        self._rate = rate
        self._context = ssl.create_default_context()
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(N_CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _run(self, index: int) -> None:
        pause = N_CLIENTS / self._rate
        t_next = time.monotonic() + pause * index / N_CLIENTS
        while not self._is_over.wait(max(0.0, t_next - time.monotonic())):
            t_next = max(t_next + pause, time.monotonic())
            try:
                with (
                    socket.create_connection(("127.0.0.1", self._port), 30) as plain,
                    self._context.wrap_socket(plain) as secure,
                ):
                    secure.sendall(REQUEST)
                    secure.recv(4096)
            except OSError:
                continue
            with self._lock:
                self.n_done += 1

    def close(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()


def measure(kind: str, rate: float, seconds: float, folder: Path) -> tuple[list[float], float]:
    """Return the lateness of each turn in ms, and the handshakes per second. A rate of 0 means no clients."""
    command = [sys.executable, "-m", "bench.micro.tls_handshakes", kind, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        port = int(process.stdout.readline())
        clients = Clients(port, rate) if rate else None
        process.send_signal(signal.SIGUSR1)
        time.sleep(seconds)
        n_done = clients.n_done if clients else 0
        process.terminate()
        times: list[float] = json.loads(process.stdout.read())
        if clients:
            clients.close()
        return times, n_done / seconds
    finally:
        process.kill()
        process.wait()


def make_certificate(folder: Path, bits: int) -> None:
    names = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem"), "-subj", "/CN=localhost"]
    command = ["openssl", "req", "-x509", "-newkey", f"rsa:{bits}", "-nodes", "-days", "2", *names]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise BenchError(f"openssl made no certificate: {error}") from None


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bits", type=int, default=2048, help="bits of the certificate's RSA key (2048)")
    parser.add_argument("--rate", type=float, default=200, help="handshakes per second (200)")
    parser.add_argument("--seconds", type=float, default=5.0)


def main(flags: argparse.Namespace) -> int:
    print("| event loop late by, ms | p50 | p99 | max | handshakes/s |\n| --- | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory(prefix="llamad-tls-") as name:
        make_certificate(Path(name), flags.bits)
        for kind, rate in ((KINDS[0], 0.0), (KINDS[0], flags.rate), (KINDS[1], flags.rate)):
            times, done = measure(kind, rate, flags.seconds, Path(name))
            shown = " | ".join(f"{np.percentile(times, p):.1f}" for p in (50, 99, 100))
            print(f"| {kind if rate else 'no clients'} | {shown} | {done:.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1], Path(sys.argv[2])))
