"""Measures how long a program takes to start: from exec to its port, to /health, to the first token of a completion.

Runs in the bench's process. Programs are started one at a time, in turns; the model is in the page cache.
"""

from __future__ import annotations

import argparse
import socket

from bench import client
from bench.client import Client, clock
from bench.harness import Point
from bench.programs import Options, Program
from bench.scenarios import server_args
from bench.stats import Measures

PAUSE_S = 0.001
CONNECT_SECONDS = 10.0
CONTEXT = 512  # tokens of each slot
BODY = {"prompt": "Once upon a time", "n_predict": 2, "stream": True, "ignore_eos": True}


def is_listening(program: Program) -> bool:
    try:
        socket.create_connection(program.address, CONNECT_SECONDS).close()
    except ConnectionRefusedError:
        return False
    return True


def slot_options(flags: argparse.Namespace, n_slots: int) -> Options:
    """Return options as a user starts a server, with its defaults."""
    n_ctx = (flags.ctx or CONTEXT) * n_slots
    return Options(
        str(flags.model),
        n_slots,
        n_ctx,
        flags.threads,
        flags.connections,
        server_args(flags),
        is_tuned=False,
    )


class StartupPoint(Point):
    is_fresh = True
    n_discarded = 1

    def __init__(self, flags: argparse.Namespace, n_slots: int) -> None:
        options = slot_options(flags, n_slots)
        name = f"{n_slots} slot{'s' if n_slots > 1 else ''} of {options.n_ctx // n_slots} tokens"
        super().__init__(name, options, flags.rounds)

    def measure(self, program: Program, index: int) -> Measures:
        """Measure a program that was just started. Times begin just before its exec."""
        program.wait_until(lambda: is_listening(program), PAUSE_S)
        t_listening = clock()
        program.wait_until(lambda: client.health(program.address), PAUSE_S)
        t_health = clock()
        t_first = Client(program.address).first_token(BODY)
        return {
            "listening_ms": (t_listening - program.t_exec) / 1e6,
            "health_ms": (t_health - program.t_exec) / 1e6,
            "start_first_ms": (t_first - program.t_exec) / 1e6,
            "start_cpu_ms": program.cpu_s() * 1e3,
        }


def points(flags: argparse.Namespace) -> list[Point]:
    return [StartupPoint(flags, n) for n in flags.slots]
