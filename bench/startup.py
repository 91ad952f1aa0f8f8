"""Owns how long a program takes to start: from exec to its port, to /health, to the first token of a completion.

Runs in the bench's process. Programs are started one at a time, in turns; the model lies in the page cache.
"""

from __future__ import annotations

import socket
from pathlib import Path

from bench import load, programs, wire
from bench.load import clock
from bench.programs import Options, Program
from bench.scenarios import Section, Work, completion
from bench.stats import Measures

PAUSE_S = 0.001
ASK_SECONDS = 10.0
PROMPT = "Once upon a time"


def is_listening(program: Program) -> bool:
    try:
        socket.create_connection(program.address, ASK_SECONDS).close()
    except ConnectionRefusedError:
        return False
    return True


def health(program: Program) -> bytes:
    """What /health answers on a connection of its own; nothing where there is no answer."""
    try:
        with socket.create_connection(program.address, ASK_SECONDS) as connection:
            connection.sendall(wire.request("GET", "/health", "bench"))
            return connection.recv(4096)
    except OSError:
        return b""


def measure(program: Program, work: Work) -> Measures:
    """Of a program that was started this moment. Times from just before its exec."""
    program.wait_until(lambda: is_listening(program), PAUSE_S)
    t_listening = clock()
    program.wait_until(lambda: health(program).startswith(b"HTTP/1.1 200"), PAUSE_S)
    t_health = clock()
    data = completion(program, PROMPT, 2, work.seed, work.sampling)
    stream = wire.stream(load.run_streams(program.address, [[data]], work.timeout_s).exchanges[0])
    return {
        "listening_ms": (t_listening - program.t_exec) / 1e6,
        "health_ms": (t_health - program.t_exec) / 1e6,
        "start_first_ms": (stream.times[0] - program.t_exec) / 1e6,
        "start_cpu_ms": program.cpu_s() * 1e3,
    }


def startup(options: Options, server: str | None, work: Work, folder: Path) -> Section:
    """The first start of each is not counted: it brings the files into the page cache."""
    rounds: dict[str, list[Measures]] = {}
    for i, name in enumerate(programs.turns(server, work.n_rounds + 1)):
        program = programs.start(name, options, server, folder)
        try:
            measures = measure(program, work)
        finally:
            program.stop()
        if i >= 1 + (server is not None):
            rounds.setdefault(name, []).append(measures)
    n_ctx = options.n_ctx // options.n_slots
    title = f"start-up, {options.n_slots} slots of {n_ctx} tokens: {work.n_rounds} starts each"
    return Section(title, dict(sorted(rounds.items(), key=lambda item: item[0] != programs.LLAMAD)))
