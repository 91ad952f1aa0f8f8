"""Measures the CPU time of a small request in llamad's HTTP layer, in uvicorn and in aiohttp, in turns.

Each program is one process with uvloop and a handler that sends 15 bytes of JSON, without an access log; for llamad it
is the HTTP layer alone, without the API above it. The load generator sends requests on --connections for --seconds. The
server's CPU time for each request hardly depends on other load of the machine; requests/s do.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.metadata
import importlib.util
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import uvloop

from bench import load
from bench.errors import BenchError
from llamad.flags.sources import Sources
from llamad.http.cors import Cors
from llamad.http.exchange import Exchange
from llamad.http.limits import Limits
from llamad.http.request import Request, Response
from llamad.http.server import HttpServer
from llamad.http_settings import limits_of

BODY = b'{"status":"ok"}'
TYPE = "application/json; charset=utf-8"
# The packages that each server needs.
SERVERS = {
    "llamad": ("httptools", "uvloop"),
    "uvicorn": ("uvicorn", "httptools"),
    "uvicorn-h11": ("uvicorn", "h11"),
    "aiohttp": ("aiohttp",),
}
TICKS = 100  # per second, in /proc/PID/stat


def default_limits() -> Limits:
    """Return the limits that the flags set by default."""
    return limits_of(Sources(["-m", "none.gguf"], {}).read().settings.daemon)


class App:
    """A minimal application for the HTTP layer."""

    def on_head(self, request: Request) -> Response | None:
        return None

    def body_max(self, request: Request) -> int:
        return 0

    def body_buffer(self, request: Request, length: int) -> memoryview | Response | None:
        return None

    def on_request(self, exchange: Exchange) -> None:
        exchange.send(Response(200, BODY, TYPE))

    def on_done(self, exchange: Exchange, seconds: float) -> None:
        pass

    def error(self, status: int, message: str, request: Request | None = None) -> Response:
        return Response(status, message.encode())


async def _serve_llamad(port: int) -> None:
    server = HttpServer(App(), default_limits(), Cors(), None)
    await server.listen(["127.0.0.1"], port)
    await asyncio.Event().wait()


async def _asgi(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    headers = [(b"content-type", TYPE.encode()), (b"content-length", str(len(BODY)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": BODY})


async def _serve_aiohttp(port: int) -> None:
    web = importlib.import_module("aiohttp.web")

    async def health(_: Any) -> Any:
        return web.Response(body=BODY, content_type="application/json", charset="utf-8")

    app = web.Application()
    app.router.add_get("/health", health)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


def serve(name: str, port: int) -> None:
    """Serve until the process is killed."""
    if name.startswith("uvicorn"):
        http = "h11" if name.endswith("h11") else "httptools"
        uvicorn = importlib.import_module("uvicorn")
        uvicorn.run(
            _asgi, port=port, http=http, loop="uvloop", access_log=False, log_level="error", lifespan="off"
        )
    else:
        uvloop.run(_serve_llamad(port) if name == "llamad" else _serve_aiohttp(port))


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def started(name: str) -> tuple[subprocess.Popen[bytes], int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
    process = subprocess.Popen([sys.executable, "-m", "bench.micro.http_servers", name, str(port)])
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return process, port
        except OSError:
            time.sleep(0.05)
    process.kill()
    raise BenchError(f"{name} did not listen within 10 s")


def measure(name: str, connections: int, seconds: float) -> tuple[float, float]:
    """Return the µs of CPU time for each request, and the requests per second."""
    process, port = started(name)
    try:
        group = load.Group(connections, [], "/health")
        load.requests(port, group, min(seconds, 0.5))
        before = cpu_s(process.pid)
        measures = load.requests(port, group, seconds)
        return (cpu_s(process.pid) - before) / measures["requests"] * 1e6, measures["requests_per_s"]
    finally:
        process.kill()
        process.wait()


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)


def main(flags: argparse.Namespace) -> int:
    missing = {
        package
        for needs in SERVERS.values()
        for package in needs
        if importlib.util.find_spec(package) is None
    }
    names = [name for name, needs in SERVERS.items() if not missing & set(needs)]
    if missing:
        print(
            f"some servers are skipped; they need packages: .venv/bin/pip install {' '.join(sorted(missing))}",
            file=sys.stderr,
        )
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for i in range(flags.rounds):
        for name in names if i % 2 else names[::-1]:
            rounds[name].append(measure(name, flags.connections, flags.seconds))
    packages = sorted({package for name in names for package in SERVERS[name]})
    print(", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages), end="\n\n")
    print("| | CPU µs a request | single rounds | requests/s |\n| --- | ---: | --- | ---: |")
    for name, some in rounds.items():
        costs = [cost for cost, _ in some]
        rate = statistics.median(rate for _, rate in some)
        print(
            f"| {name} | {statistics.median(costs):.1f} | {min(costs):.1f} - {max(costs):.1f} | {rate:,.0f} |"
        )
    return 0


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
