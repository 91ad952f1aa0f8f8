"""What a hostile client costs the others: /health and a normal stream, while it sends what would hurt.

One llamad with two API keys; the attacker has one, the others the other. Attackers are processes of their own, but they
share the machine's cores, so the first row, without an attack, and the second, where a process merely keeps a core
busy, are what the others are to be compared with.
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
from collections.abc import Callable
from pathlib import Path

from bench.client import Address, clock
from bench.errors import BenchError
from bench.programs import Options, Program, Programs

ATTACKER, OTHER = "attacker", "other"
PROBE_SECONDS = 0.01
SETTLE_SECONDS = 1.0

Attack = Callable[[Address], None]


def add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", required=True, help="the GGUF file")
    add("--seconds", type=float, default=8.0, help="length of each attack (8)")
    add("--only", action="append", choices=list(ATTACKS), metavar="NAME", help="this attack; may be repeated")
    add("--threads", type=int, default=1, help="-t of llamad (1)")
    add("--ngl", type=int, default=0, help="layers on the device (0)")


# --- attacks: each runs in a process of its own until it is ended ---------------------------------------------------


def _post(address: Address, path: str, body: bytes, key: str = ATTACKER) -> None:
    connection = http.client.HTTPConnection(*address, timeout=60)
    try:
        connection.request("POST", path, body, {"Authorization": f"Bearer {key}"})
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        time.sleep(0.01)  # refused or cut off, as it should be
    finally:
        connection.close()


def _repeat(path: str, body: Callable[[int], bytes], key: str = ATTACKER) -> Attack:
    def attack(address: Address) -> None:
        i = 0
        while True:
            _post(address, path, body(i), key)
            i += 1

    return attack


def _json(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def busy(address: Address) -> None:
    while True:
        random.random()


def idle_connections(address: Address) -> None:
    held = []
    while True:
        try:
            held.append(socket.create_connection(address, timeout=5))
        except OSError:
            time.sleep(0.01)
        if len(held) > 15_000:
            held.clear()


def half_requests(address: Address) -> None:
    held = []
    while True:
        try:
            one = socket.create_connection(address, timeout=5)
            one.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{")
            held.append(one)
        except OSError:
            time.sleep(0.01)
        if len(held) > 15_000:
            held.clear()


def stalled_readers(address: Address) -> None:
    body = _json(prompt="x", n_predict=4000, ignore_eos=True, stream=True, n_probs=50)
    held = []
    for _ in range(16):
        one = socket.create_connection(address, timeout=5)
        head = f"POST /completion HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ATTACKER}\r\n"
        one.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        held.append(one)
    while True:
        time.sleep(1)


def noise(address: Address) -> None:
    chance = random.Random(1)
    while True:
        try:
            with socket.create_connection(address, timeout=5) as one:
                one.sendall(chance.randbytes(20_000))
                one.recv(1000)
        except OSError:
            pass


def _schema(i: int) -> bytes:
    pattern = "^(" + "|".join(f"[a-z]{{1,{n}}}[0-9]*x{i}" for n in range(1, 60)) + ")$"
    return _json(prompt="x", n_predict=1, json_schema={"type": "string", "pattern": pattern})


def _grammar(i: int) -> bytes:
    rules = "\n".join(f'r{n} ::= ("a" | "b{i}" | r{n + 1})* "c"' for n in range(300)) + '\nr300 ::= "z"'
    return _json(prompt="x", n_predict=1, grammar="root ::= r0\n" + rules)


ATTACKS: dict[str, Attack | None] = {
    "none": None,
    "a busy core": busy,
    "special tokens, 400 KB": _repeat(
        "/completion", lambda i: _json(prompt="<|im_end|>" * 40_000, n_predict=1)
    ),
    "special tokens, 4 MB, /tokenize": _repeat("/tokenize", lambda i: _json(content="<|im_end|>" * 400_000)),
    "one long word, 4 MB, /tokenize": _repeat("/tokenize", lambda i: _json(content="ab" * 2_000_000)),
    "pieces of 1 MB, /tokenize": _repeat(
        "/tokenize", lambda i: _json(content="a b " * 250_000, with_pieces=True)
    ),
    "nested JSON, 60 MB": _repeat("/completion", lambda i: b'{"prompt":[' + b"[[]]," * 12_000_000 + b"1]}"),
    "deep JSON": _repeat("/completion", lambda i: b'{"prompt":' + b"[" * 990 + b"]" * 990 + b"}"),
    "many strings, 30 MB": _repeat(
        "/v1/embeddings", lambda i: b'{"input":[' + b'"ab",' * 6_000_000 + b'"c"]}'
    ),
    "body on a path without one, 8 MB": _repeat("/health", lambda i: b"x" * 8_000_000, key=""),
    "bodies without a key, 60 MB": _repeat("/completion", lambda i: b" " * 60_000_000, key="none"),
    "slow schemas": _repeat("/completion", _schema),
    "slow grammars": _repeat("/completion", _grammar),
    "large answers": _repeat(
        "/completion", lambda i: _json(prompt="x", n_predict=100_000, ignore_eos=True, n_probs=100)
    ),
    "long chats": _repeat(
        "/v1/chat/completions",
        lambda i: _json(messages=[{"role": "user", "content": "word"}] * 20_000, max_tokens=1),
    ),
    "stalled readers": stalled_readers,
    "idle connections": idle_connections,
    "half requests": half_requests,
    "noise": noise,
}


# --- the others -----------------------------------------------------------------------------------------------------


class Watch:
    """Asks for /health again and again, and reads a stream; keeps the times in ms."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._end = threading.Event()
        self.health: list[float] = []
        self.gaps: list[float] = []
        self.n_lost = 0
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._ask, self._read)]

    def __enter__(self) -> Watch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(60)

    def _ask(self) -> None:
        connection = http.client.HTTPConnection(*self._address, timeout=60)
        while not self._end.is_set():
            t_start = clock()
            try:
                connection.request("GET", "/health")
                connection.getresponse().read()
            except (OSError, http.client.HTTPException):
                self.n_lost += 1
                connection.close()
            self.health.append((clock() - t_start) / 1e6)
            time.sleep(PROBE_SECONDS)
        connection.close()

    def _read(self) -> None:
        body = _json(prompt="Once upon a time", n_predict=100_000, ignore_eos=True, stream=True)
        while not self._end.is_set():
            connection = http.client.HTTPConnection(*self._address, timeout=60)
            try:
                connection.request("POST", "/completion", body, {"Authorization": f"Bearer {OTHER}"})
                t_last = 0
                for line in connection.getresponse():
                    if line.startswith(b"data: "):
                        now = clock()
                        if t_last:
                            self.gaps.append((now - t_last) / 1e6)
                        t_last = now
                    if self._end.is_set():
                        break
            except (OSError, http.client.HTTPException):
                self.n_lost += 1
            finally:
                connection.close()


def percentile(values: list[float], percent: float) -> float:
    """Of sorted values."""
    return values[min(len(values) - 1, int(len(values) * percent / 100))]


def _row(name: str, watch: Watch) -> str:
    health, gaps = sorted(watch.health), sorted(watch.gaps)
    if not health or not gaps:
        raise BenchError(f"{name}: nothing was answered")
    figures = [percentile(health, 50), percentile(health, 99), health[-1], percentile(gaps, 50)]
    figures += [percentile(gaps, 99), gaps[-1]]
    return f"| {name:34} | " + " | ".join(f"{value:8.1f}" for value in figures) + f" | {watch.n_lost:4} |"


def _measure(program: Program, name: str, attack: Attack | None, seconds: float) -> str:
    attackers = [
        multiprocessing.Process(target=attack, args=(program.address,), daemon=True)
        for _ in range(2 if attack is not None and attack is not busy else int(attack is not None))
    ]
    for one in attackers:
        one.start()
    time.sleep(SETTLE_SECONDS)
    with Watch(program.address) as watch:
        time.sleep(seconds)
    for one in attackers:
        one.kill()
        one.join()
    program.wait_ready()
    return _row(name, watch)


def main(flags: argparse.Namespace) -> int:
    wanted = flags.only or list(ATTACKS)
    keys = ("--api-key", ATTACKER, "--api-key", OTHER, "-ngl", str(flags.ngl), "--stall-seconds", "2")
    options = Options(flags.model, 4, 16384, flags.threads, 0, keys)
    columns = ["/health p50", "p99", "max", "gap p50", "p99", "max"]
    print(f"| {'attack, ms':34} | " + " | ".join(f"{one:>8}" for one in columns) + " | lost |", flush=True)
    print("| --- |" + " --: |" * 7, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        program = Programs().start("llamad", options, Path(folder))
        try:
            program.wait_ready()
            for name in wanted:
                print(_measure(program, name, ATTACKS[name], flags.seconds), flush=True)
        finally:
            program.stop()
    return 0
