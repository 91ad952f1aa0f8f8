"""Sends valid requests of growing size to every endpoint of the real program, over real sockets.

Invariant: no request, whatever its size, blocks the event loop for more than 250 ms, because all other clients wait
that long. Time in which the machine had no core for the program does not count (tests/support/loops/watchdog.py). Every
request gets a response, and never a 500.

Requests follow the table of routes and the structs of their bodies (tests/support/loops/growing_requests.py). A
failure names the request, how late the loop was, and the stack that held it. `make fuzz` runs it; LLAMAD_FUZZ_CASES
says how long, LLAMAD_FUZZ_SEED repeats a run.
"""

import os
import random
import select
import socket
from pathlib import Path

import msgspec
import pytest
from support.live_daemon import Live, model_path
from support.loops.growing_requests import GrowingRequests, Request
from support.loops.watchdog import Stall
from support.models.tiny_model import N_EMBD, write_tiny
from support.models.tiny_projectors import write_projector

N_CASES = max(60, int(os.environ.get("LLAMAD_FUZZ_CASES", "20000")) // 20)
SEED = int(os.environ.get("LLAMAD_FUZZ_SEED", random.randrange(2**32)))
LATE_SECONDS = 0.25
BYTES_MIN, BYTES_MAX = 256, 40_000_000
ANSWER_SECONDS = 120
FLAGS = (
    *("-np", "2", "-c", "16384", "-n", "4", "--n-predict-max", "16", "--request-timeout", "10"),
    *("--slots", "--props", "--metrics", "--embeddings"),
)


class Watched:
    """The program, and the reports of its watchdog."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "stalls"
        self.file.touch()
        model = write_tiny(folder / "tiny.gguf", model_path())
        self.live = Live(
            *FLAGS,
            *("--slot-save-path", str(folder), "--lora-load-path", str(folder)),
            *("--mmproj", write_projector(folder / "sees.gguf", "janus_pro", N_EMBD)),
            model=str(model),
            watched=True,
            env={
                "LLAMAD_WATCH_FILE": str(self.file),
                "LLAMAD_WATCH_SECONDS": str(LATE_SECONDS),
            },
        )
        self._n_read = 0
        self.stalls()  # drops those of the start

    def stalls(self) -> list[Stall]:
        """Return the stalls since the last call."""
        with self.file.open("rb") as file:
            file.seek(self._n_read)
            data = file.read()
        self._n_read += len(data)
        return [msgspec.json.decode(line, type=Stall) for line in data.splitlines()]

    def send(self, request: Request) -> bytes:
        """Send a request; return the beginning of the response."""
        client = self.live.client
        answer = bytearray()
        with socket.create_connection((client.host, client.port), timeout=ANSWER_SECONDS) as connection:
            sender = _Sender(connection, request.data)
            while data := sender.receive():
                answer += data[:1024] if len(answer) < 1024 else b""
        return bytes(answer)


class _Sender:
    """Sends as much as the server accepts, and reads meanwhile."""

    def __init__(self, connection: socket.socket, data: bytes) -> None:
        self.connection = connection
        self.rest = memoryview(data)

    def receive(self) -> bytes:
        while True:
            writes = [self.connection] if self.rest else []
            readable, writable, _ = select.select([self.connection], writes, [], ANSWER_SECONDS)
            if not readable and not writable:
                raise TimeoutError
            if readable:
                try:
                    return self.connection.recv(1 << 20)
                except ConnectionResetError:
                    return b""
            try:
                self.rest = self.rest[self.connection.send(self.rest[: 1 << 18]) :]
            except OSError:
                self.rest = self.rest[:0]  # the server refuses the rest


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    watched = Watched(tmp_path_factory.mktemp("watched"))
    with watched.live:
        yield watched


def test_no_request_keeps_the_loop(watched):
    requests, findings = GrowingRequests(SEED), []
    for i in range(N_CASES):
        # The endpoints take turns; sizes grow by orders of magnitude and begin again.
        route = requests.routes[i % len(requests.routes)]
        share = (i // len(requests.routes) % 12 + requests.random.random()) / 12
        request = requests.to(route, int(BYTES_MIN * (BYTES_MAX / BYTES_MIN) ** share))
        try:
            answer = watched.send(request)
        except TimeoutError:
            findings.append(f"{request.name}\nno answer")
            continue
        assert watched.live.process.poll() is None, (SEED, request.name)
        if b" 500 " in answer.partition(b"\r\n")[0]:
            findings.append(f"{request.name}\n{answer[:400]!r}")
        findings += [f"{request.name}\n{stall}" for stall in watched.stalls() if stall.own_s > LATE_SECONDS]
    assert not findings, f"seed {SEED}: {len(findings)} of {N_CASES}\n" + "\n\n".join(findings[:12])
