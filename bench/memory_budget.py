"""Measures the memory of requests at their limits: many clients of four keys send them for minutes, then all leave.

It starts llamad with four API keys and a small budget (--bodies-max-bytes). Each client sends one request after
another: 65,536 biases, a unique grammar, a prompt of tokens, or a body of many values. It disconnects from every second
one before the response. The memory of front and engine is read from /proc all the time, and once more at the end.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import random
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.queues import SimpleQueue
from pathlib import Path

from bench.client import Address
from bench.errors import BenchError
from bench.programs import Options, Program, Programs, family

KEYS = ("key-a", "key-b", "key-c", "key-d")
N_SLOTS, N_CTX = 4, 8192
SAMPLE_SECONDS = 0.25
PATIENCE_SECONDS = (0.5, 8.0)  # when a client that does not wait disconnects
ANSWER_SECONDS = 120.0
ROOM_MB = 50.0
N_BIASES, N_WORDS, N_STRINGS = 65_536, 40_000, 150_000
N_PROMPT, N_PREDICT = 64, 4
PLACE = "PLACE"
MIB = 1 << 20


def add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", required=True, help="the GGUF file")
    add("--seconds", type=float, default=300.0, help="how long the clients send (300)")
    add("--clients", type=int, default=100, help="clients; each key has a quarter of them (100)")
    add("--budget", type=int, default=64, help="--bodies-max-bytes in MiB (64)")
    add("--threads", type=int, default=1, help="-t of llamad (1)")
    add(
        "--leave-seconds",
        type=float,
        default=30.0,
        help="the longest wait after the last client has disconnected (30)",
    )


# --- clients, in a process for each key -----------------------------------------------------------------------------


class Bodies:
    """Requests at the limits. All grammars are different."""

    def __init__(self, key: str) -> None:
        biases = [[i % 40_000, round(i % 100 / 7, 3)] for i in range(N_BIASES)]
        tokens = [i % 1000 + 1000 for i in range(N_PROMPT)]
        values = [f"text {i}" for i in range(N_STRINGS)]
        self._key = key
        self._n_grammars = 0
        text = "root ::= " + " | ".join(f'"{n:x}-{PLACE}"' for n in range(N_WORDS))
        self._grammar = json.dumps({"prompt": "Once", "n_predict": N_PREDICT, "grammar": text}).encode()
        self._fixed = [
            json.dumps({"prompt": "Once", "n_predict": N_PREDICT, "logit_bias": biases}).encode(),
            json.dumps({"prompt": tokens, "n_predict": N_PREDICT}).encode(),
            json.dumps({"prompt": "Once", "n_predict": N_PREDICT, "metadata": values}).encode(),
        ]

    def take(self, chance: random.Random) -> bytes:
        i = chance.randrange(4)
        if i < 3:
            return self._fixed[i]
        self._n_grammars += 1
        own = f"{self._key}{self._n_grammars:x}{chance.random()}"
        return self._grammar.replace(PLACE.encode(), own[:16].encode())


def _send(address: Address, key: str, body: bytes, patience: float) -> str:
    """Return the status of the response, or what happened instead."""
    connection = http.client.HTTPConnection(*address, timeout=patience)
    try:
        connection.request("POST", "/completion", body, {"Authorization": f"Bearer {key}"})
        response = connection.getresponse()
        response.read()
        return str(response.status)
    except TimeoutError:
        return "left"
    except (OSError, http.client.HTTPException):
        return "cut off"
    finally:
        connection.close()


def _client(address: Address, key: str, bodies: Bodies, t_end: float, seed: int, seen: Counter[str]) -> None:
    chance = random.Random(seed)
    while (left := t_end - time.monotonic()) > 0:
        patience = chance.uniform(*PATIENCE_SECONDS) if chance.random() < 0.5 else ANSWER_SECONDS
        status = _send(address, key, bodies.take(chance), max(0.1, min(patience, left)))
        seen[status] += 1
        if status not in ("200", "left"):
            time.sleep(chance.uniform(0.2, 1.0))


def _clients(address: Address, key: str, n: int, seconds: float, results: SimpleQueue[Counter[str]]) -> None:
    bodies, seen = Bodies(key), Counter[str]()
    t_end = time.monotonic() + seconds
    threads = [
        threading.Thread(target=_client, args=(address, key, bodies, t_end, i, seen), daemon=True)
        for i in range(n)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    results.put(seen)


# --- what is measured -----------------------------------------------------------------------------------------------


def own_mb(pid: int) -> float:
    """Return the memory of a process that is not backed by a file, in MiB. Cached prompts, which outlive the process,
    are not part of it."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) / 1024
    raise BenchError(f"process {pid} has no memory")


def engine_pid(program: Program) -> int:
    for pid in family(program.pid):
        if b"llamad.engine" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise BenchError("llamad has no engine")


def held_bytes(address: Address) -> int:
    connection = http.client.HTTPConnection(*address, timeout=30)
    connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {KEYS[0]}"})
    text = connection.getresponse().read().decode()
    connection.close()
    gauge = next(line for line in text.splitlines() if line.startswith("llamad:request_memory_bytes "))
    return int(gauge.split()[1])


class Samples:
    """Samples the memory of both processes while the clients send."""

    def __init__(self, program: Program) -> None:
        self._pids = {"front": program.pid, "engine": engine_pid(program)}
        self.peak = self.now()

    def now(self) -> dict[str, float]:
        return {name: own_mb(pid) for name, pid in self._pids.items()}

    def take(self) -> None:
        self.peak = {name: max(self.peak[name], value) for name, value in self.now().items()}


def _warm_up(program: Program) -> None:
    """Send requests of each kind, because memory that the program keeps after the first use is not a leak."""
    bodies, chance = Bodies("warm"), random.Random(0)
    for _ in range(12):
        _send(program.address, KEYS[0], bodies.take(chance), ANSWER_SECONDS)


def _until_back(
    samples: Samples, before: dict[str, float], address: Address, seconds: float
) -> Iterator[float]:
    t_start = time.monotonic()
    while time.monotonic() - t_start < seconds:
        now = samples.now()
        is_back = all(now[name] - before[name] < ROOM_MB / 4 for name in now)
        if is_back and held_bytes(address) == 0:
            return
        yield time.monotonic() - t_start
        time.sleep(0.5)


def _measure(program: Program, flags: argparse.Namespace) -> list[str]:
    program.wait_ready()
    _warm_up(program)
    time.sleep(6)
    samples = Samples(program)
    before = samples.now()
    results: SimpleQueue[Counter[str]] = multiprocessing.SimpleQueue()
    n = flags.clients // len(KEYS)
    senders = [
        multiprocessing.Process(
            target=_clients, args=(program.address, key, n, flags.seconds, results), daemon=True
        )
        for key in KEYS
    ]
    for one in senders:
        one.start()
    while any(one.is_alive() for one in senders):
        samples.take()
        time.sleep(SAMPLE_SECONDS)
    seen = sum((results.get() for _ in senders), Counter[str]())
    waited = [0.0, *_until_back(samples, before, program.address, flags.leave_seconds)][-1]
    after, held = samples.now(), held_bytes(program.address)
    rows = ["| MB | before | peak | after | after - before |", "| --- | --: | --: | --: | --: |"]
    for name, peak in samples.peak.items():
        figures = before[name], peak, after[name], after[name] - before[name]
        rows.append(f"| {name} | " + " | ".join(f"{value:.0f}" for value in figures) + " |")
    answers = ", ".join(f"{status}: {n}" for status, n in sorted(seen.items()))
    rows += [
        "",
        f"answers: {answers}",
        f"still held: {held} bytes; waited {waited:.0f} s after the last client",
    ]
    if any(after[name] - before[name] > ROOM_MB for name in after) or held:
        rows.append(f"NOT BACK within {ROOM_MB:.0f} MB")
    return rows


def main(flags: argparse.Namespace) -> int:
    keys = [word for key in KEYS for word in ("--api-key", key)]
    own = ("--metrics", "--cache-ram", "0", "--bodies-max-bytes", str(flags.budget * MIB))
    options = Options(flags.model, N_SLOTS, N_CTX, flags.threads, 0, (*keys, *own))
    socket.setdefaulttimeout(ANSWER_SECONDS)
    with tempfile.TemporaryDirectory() as folder:
        program = Programs().start("llamad", options, Path(folder))
        try:
            print("\n".join(_measure(program, flags)), flush=True)
        finally:
            program.stop()
    return 0
