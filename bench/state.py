"""MB/s of saving and restoring a slot of 8,000 tokens, in every way there is, and the longest gap in another stream
meanwhile: llamad beside memcpy of as many bytes and beside llama-server's slot files.

`python -m bench.state` (LLAMA_SERVER or --server names llama-server; --engine measures without HTTP). Each way is
taken --rounds times on a server that does nothing else, then as often beside a stream; medians, and the worst gap.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import itertools
import json
import os
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench import ending
from bench.errors import BenchError
from bench.load import Address
from bench.programs import LLAMA_SERVER, LLAMAD, Options, Program, free_port, llamad_command, peer_flags
from llamad.client.task import Done, RequestContext, Task
from llamad.engine.llama_log import LlamaLog
from llamad.flags import parse
from llamad.models.host import Host
from llamad.protocol.sampling_params import Sampling

TIMEOUT_SECONDS = 600
OCTETS = "application/octet-stream"


@dataclass(slots=True)
class Row:
    """One way of one program; seconds of each round, and the longest gap of another stream in each."""

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
    """One connection that is kept, as a client would have it."""

    def __init__(self, address: Address, n_bytes_max: int) -> None:
        self._connection = http.client.HTTPConnection(*address, timeout=TIMEOUT_SECONDS)
        self._buffer = bytearray(n_bytes_max)  # there already, so that its pages are not measured
        self._address = address

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
        """The slot holds so many tokens."""
        tokens = [200 + i * 7 % 3000 for i in range(n_tokens)]
        body = {"prompt": tokens, "id_slot": slot, "n_predict": 1, "cache_prompt": True, "temperature": 0}
        self.post("/completion", json.dumps(body).encode())

    def open_stream(self) -> Stream:
        return Stream(self._address)


class Stream:
    """Another client's completion in slot 1, written without end; when each of its tokens came."""

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
        """Of the gaps that touch this time; waits for the one that ends it."""
        while self.times[-1] < t_end and self._thread.is_alive():
            time.sleep(0.002)
        times = self.times
        return max(b - a for a, b in itertools.pairwise(times) if b >= t_begin and a <= t_end)

    def usual_gap(self) -> float:
        """Of a second in which nothing else is done."""
        self.times = self.times[-1:]
        time.sleep(1)
        return statistics.median(b - a for a, b in zip(self.times, self.times[1:], strict=False))

    def close(self) -> None:
        self._is_closing = True
        if self._connection.sock is not None:
            self._connection.sock.close()
        self._answer.close()
        self._connection.close()


# Of a task that only reads.
NO_VALUES: dict[str, Any] = dict.fromkeys(
    """seed top_k top_p min_p typical_p tfs_z top_n_sigma temperature dynatemp_range dynatemp_exponent xtc_probability
xtc_threshold repeat_last_n repeat_penalty presence_penalty frequency_penalty dry_multiplier dry_base dry_allowed_length
dry_penalty_last_n mirostat mirostat_tau mirostat_eta min_keep""".split(),
    0,
)
NO_SAMPLING = Sampling(b"", **NO_VALUES)

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


def measure(program: Program, options: argparse.Namespace, folder: Path) -> list[Row]:
    program.wait_ready()
    server = Server(program.address, 4 << 30 if options.tokens > 50_000 else 1 << 30)
    server.fill(0, options.tokens)
    is_llamad = program.name == LLAMAD
    ways = (ways_of_llamad if is_llamad else ways_of_peer)(server)
    server.post("/slots/0?action=save", json.dumps({"filename": "size.bin"}).encode())
    n_bytes = (folder / program.name / "size.bin").stat().st_size
    rows = [Row(program.name, name, n_bytes) for name, _ in ways]
    for _ in range(options.rounds):
        for row, (_, act) in zip(rows, ways, strict=True):
            t_begin = time.perf_counter()
            act()
            row.seconds.append(time.perf_counter() - t_begin)
    stream = server.open_stream()
    usual = Row(program.name, "(the stream alone)", 0, [stream.usual_gap()])
    usual.gaps = usual.seconds
    for _ in range(options.rounds):
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


class _Sink:
    def __init__(self) -> None:
        self.done: asyncio.Future[Done] = asyncio.get_running_loop().create_future()

    def on_admitted(self, slot: int, n_cached: int, t_us: int) -> None:
        pass

    def on_text(self, *_: object) -> None:
        pass

    def on_prompt(self, *args: object) -> None:
        pass

    def on_done(self, done: Done) -> None:
        self.done.set_result(done)

    def on_failed(self, failure: int, code: int) -> None:
        self.done.set_exception(BenchError(f"reading failed ({failure}, {code})"))

    def on_broken(self) -> None:
        self.on_failed(0, 0)


async def measure_engine(options: argparse.Namespace) -> list[Row]:
    """Save and restore under the endpoints; the gap is how long the engine did nothing else."""
    LlamaLog().attach(asyncio.get_running_loop())
    host = Host(parse(engine_flags(options), {}).settings)
    await host.load()
    if host.engine is None or host.states is None:
        raise BenchError(f"the model cannot be measured: {host.error}")
    tokens = [200 + i * 7 % 3000 for i in range(options.tokens)]
    sink = _Sink()
    prompt = struct.pack(f"<{len(tokens)}i", *tokens)
    host.engine.submit(Task(RequestContext("bench"), prompt, NO_SAMPLING, id_slot=0, n_predict=0), sink)
    await sink.done
    rows = [Row("engine", name, 0) for name in ("save", "restore")]
    for _ in range(options.rounds):
        t_begin = time.perf_counter()
        saved = await host.states.save(0)
        t_saved = time.perf_counter()
        restored = await host.states.restore(1, saved.blob)
        t_end = time.perf_counter()
        for row, seconds, stall_us in (
            (rows[0], t_saved - t_begin, saved.stall_us),
            (rows[1], t_end - t_saved, restored.stall_us),
        ):
            row.n_bytes = saved.blob.size
            row.seconds.append(seconds)
            row.gaps.append(stall_us / 1e6)
    await host.close()
    return rows


def engine_flags(options: argparse.Namespace) -> list[str]:
    return ["-m", options.model, "-t", str(options.threads), "-c", str(options.ctx), "-np", "2", "--slots"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.state", description=__doc__)
    parser.add_argument("--model", default=os.environ.get("LLAMAD_TEST_MODEL"), help="the GGUF to serve")
    parser.add_argument("--server", default=os.environ.get("LLAMA_SERVER"), help="llama-server, to compare")
    parser.add_argument("--tokens", type=int, default=8000, help="in the slot")
    parser.add_argument("--ctx", type=int, default=16384, help="of both slots together")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--engine", action="store_true", help="without HTTP: the engine's part alone")
    found = parser.parse_args()
    if not found.model:
        parser.error("no model: name one with --model or LLAMAD_TEST_MODEL")
    return found


def measure_programs(options: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        commands = {LLAMAD: llamad_command()}
        if options.server:
            commands[LLAMA_SERVER] = [options.server, *peer_flags(options.server, 4)]
        for program_name, command in commands.items():
            files = folder / program_name
            files.mkdir()
            port = free_port()
            flags = Options(options.model, 2, options.ctx, options.threads, 4).flags(port)
            whole = [*command, *flags, "--slots", "--slot-save-path", f"{files}/"]
            program = Program(program_name, whole, port, folder / f"{program_name}.log")
            try:
                rows += measure(program, options, folder)
            finally:
                program.stop()
    return rows


def main() -> int:
    options = arguments()
    try:
        rows = asyncio.run(measure_engine(options)) if options.engine else measure_programs(options)
    except BenchError as error:
        print(f"bench.state: {error}", file=sys.stderr)
        return 1
    n_bytes = max(row.n_bytes for row in rows)
    rows.append(measure_memcpy(n_bytes, options.rounds))
    print(f"{options.tokens} tokens, {n_bytes / 1e6:.1f} MB, {options.threads} thread(s)")
    print(f"{'':14}{'':26}{'ms':>10}{'MB/s':>10}{'gap ms':>10}")
    for row in rows:
        print(row.line())
    return 0


if __name__ == "__main__":
    ending.with_children()
    sys.exit(main())
