"""Measures the MB/s of saving and restoring a slot in all possible ways, and the longest gap in another stream.

llamad is compared with memcpy of as many bytes and with llama-server's slot files. Each way is measured --rounds times
on a server that does nothing else, then as often beside a stream. The results are medians, and the longest gap.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench import programs
from bench.client import Address
from bench.errors import BenchError
from bench.programs import LLAMA_SERVER, LLAMAD, Options, Program, Programs

TIMEOUT_SECONDS = 600
OCTETS = "application/octet-stream"


@dataclass(slots=True)
class Row:
    """One way of one program: the seconds of each round, and the longest gap of another stream in each."""

    program: str
    name: str
    n_bytes: int
    seconds: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)

    def line(self) -> str:
        seconds = statistics.median(self.seconds)
        gap = f"{max(self.gaps) * 1e3:10.1f}" if self.gaps else f"{'':>10}"
        rate = self.n_bytes / seconds / 1e6
        return f"{self.program:14}{self.name:26}{seconds * 1e3:10.1f}{rate:10.0f}{gap}"


class Server:
    """A keep-alive connection, as a client would use it."""

    def __init__(self, address: Address, n_bytes_max: int) -> None:
        self._connection = http.client.HTTPConnection(*address, timeout=TIMEOUT_SECONDS)
        self._buffer = bytearray(n_bytes_max)  # allocated before, so that its page faults are not measured

    def post(self, path: str, body: bytes, **headers: str) -> memoryview:
        self._connection.request("POST", path, body, {k.replace("_", "-"): v for k, v in headers.items()})
        answer = self._connection.getresponse()
        view, n = memoryview(self._buffer), 0
        while got := answer.readinto(view[n:]):
            n += got
        if answer.status != 200:
            raise BenchError(f"{path}: {answer.status} {bytes(view[:400]).decode(errors='replace')}")
        return view[:n]

    def fill(self, slot: int, n_tokens: int) -> None:
        """Fill a slot with `n_tokens` tokens."""
        tokens = [200 + i * 7 % 3000 for i in range(n_tokens)]
        body = {"prompt": tokens, "id_slot": slot, "n_predict": 1, "cache_prompt": True, "temperature": 0}
        self.post("/completion", json.dumps(body).encode())


class Stream:
    """An endless completion of another client in slot 1, and the times at which its tokens arrived."""

    def __init__(self, address: Address) -> None:
        self.times: list[float] = []
        self._connection = http.client.HTTPConnection(*address, timeout=TIMEOUT_SECONDS)
        body = {"prompt": "Once", "id_slot": 1, "n_predict": 6000, "ignore_eos": True, "stream": True}
        self._connection.request("POST", "/completion", json.dumps(body).encode())
        self._answer = self._connection.getresponse()
        self._is_closing = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        while len(self.times) < 20:
            time.sleep(0.01)
            if not self._thread.is_alive():
                raise BenchError("the stream beside ended early")

    def _read(self) -> None:
        try:
            for line in self._answer:
                if line.startswith(b"data: "):
                    self.times.append(time.perf_counter())
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            if not self._is_closing:
                raise

    def longest_gap(self, t_begin: float, t_end: float) -> float:
        """Return the longest gap that overlaps this time; wait for the one that ends it."""
        while self.times[-1] < t_end and self._thread.is_alive():
            time.sleep(0.002)
        times = self.times
        return max(b - a for a, b in itertools.pairwise(times) if b >= t_begin and a <= t_end)

    def usual_gap(self) -> float:
        """Return the median gap of a second in which nothing else happens."""
        self.times = self.times[-1:]
        time.sleep(1)
        return statistics.median(b - a for a, b in zip(self.times, self.times[1:], strict=False))

    def close(self) -> None:
        self._is_closing = True
        if self._connection.sock is not None:
            self._connection.sock.close()
        self._answer.close()
        self._connection.close()


Way = tuple[str, Callable[[], object]]


def ways_of_llamad(server: Server) -> list[Way]:
    blob = bytes(server.post("/slots/0?action=save-state", b"", Accept=OCTETS))
    text = bytes(server.post("/slots/0?action=save-state", b""))
    name = json.dumps({"filename": "bench.bin"}).encode()
    return [
        ("save-state, octets", lambda: server.post("/slots/0?action=save-state", b"", Accept=OCTETS)),
        (
            "restore-state, octets",
            lambda: server.post("/slots/0?action=restore-state", blob, Content_Type=OCTETS),
        ),
        ("save-state, JSON", lambda: server.post("/slots/0?action=save-state", b"")),
        (
            "restore-state, JSON",
            lambda: server.post("/slots/0?action=restore-state", text, Content_Type="application/json"),
        ),
        ("session save", lambda: server.post("/sessions/7?action=save&slot=0", b"")),
        ("session restore", lambda: server.post("/sessions/7?action=restore&slot=0", b"")),
        ("slot file save", lambda: server.post("/slots/0?action=save", name)),
        ("slot file restore", lambda: server.post("/slots/0?action=restore", name)),
    ]


def ways_of_peer(server: Server) -> list[Way]:
    name = json.dumps({"filename": "bench.bin"}).encode()
    return [
        ("slot file save", lambda: server.post("/slots/0?action=save", name)),
        ("slot file restore", lambda: server.post("/slots/0?action=restore", name)),
    ]


def measure(program: Program, flags: argparse.Namespace, files: Path) -> list[Row]:
    program.wait_ready()
    server = Server(program.address, 4 << 30 if flags.tokens > 50_000 else 1 << 30)
    server.fill(0, flags.tokens)
    is_llamad = program.name == LLAMAD
    ways = (ways_of_llamad if is_llamad else ways_of_peer)(server)
    server.post("/slots/0?action=save", json.dumps({"filename": "size.bin"}).encode())
    n_bytes = (files / "size.bin").stat().st_size
    rows = [Row(program.name, name, n_bytes) for name, _ in ways]
    for _ in range(flags.rounds):
        for row, (_, act) in zip(rows, ways, strict=True):
            t_begin = time.perf_counter()
            act()
            row.seconds.append(time.perf_counter() - t_begin)
    stream = Stream(program.address)
    usual = Row(program.name, "(the stream alone)", 0, [stream.usual_gap()])
    usual.gaps = usual.seconds
    for _ in range(flags.rounds):
        for row, (_, act) in zip(rows, ways, strict=True):
            time.sleep(0.2)
            t_begin = time.perf_counter()
            act()
            row.gaps.append(stream.longest_gap(t_begin, time.perf_counter()))
    stream.close()
    return [*rows, usual]


def measure_memcpy(n_bytes: int, n_rounds: int) -> Row:
    source, target = np.ones(n_bytes, np.uint8), np.zeros(n_bytes, np.uint8)
    row = Row("memcpy", "", n_bytes)
    for _ in range(max(3, n_rounds)):
        t_begin = time.perf_counter()
        np.copyto(target, source)
        row.seconds.append(time.perf_counter() - t_begin)
    return row


def show(rows: list[Row], flags: argparse.Namespace) -> None:
    """Print the rows, with a memcpy of as many bytes for comparison."""
    n_bytes = max(row.n_bytes for row in rows)
    print(f"{flags.tokens} tokens, {n_bytes / 1e6:.1f} MB, {flags.threads} thread(s)")
    print(f"{'':14}{'':26}{'ms':>10}{'MB/s':>10}{'gap ms':>10}")
    for row in [*rows, measure_memcpy(n_bytes, flags.rounds)]:
        print(row.line())


def add_flags(parser: argparse.ArgumentParser) -> None:
    programs.add_flags(parser)
    parser.add_argument("--tokens", type=int, default=8000, help="tokens in the slot (8000)")
    parser.add_argument("--ctx", type=int, default=16384, help="context of both slots together (16384)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="compute threads (1)")


def main(flags: argparse.Namespace) -> int:
    programs.check_model(flags)
    there = Programs(flags.server)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="llamad-state-") as name:
        for program_name in [LLAMAD, *([LLAMA_SERVER] if there.path(LLAMA_SERVER) else [])]:
            files = Path(name) / program_name
            files.mkdir()
            extra = ("--slots", "--slot-save-path", f"{files}/")
            options = Options(flags.model, 2, flags.ctx, flags.threads, 4, extra)
            program = there.start(program_name, options, Path(name))
            try:
                rows += measure(program, flags, files)
            finally:
                program.stop()
    show(rows, flags)
    return 0
