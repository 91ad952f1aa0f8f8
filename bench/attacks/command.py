"""Measures how much a hostile client slows down the others: /health, a normal stream and memory during attacks.

llamad has two API keys: the attacker uses one, the other clients use the other. Attackers are separate processes, but
they share the machine's cores, so the rows must be compared with the first two: without an attack, and with a process
that only keeps a core busy. Memory is what front and engine have more than before: the most during the attack, and what
is left after the attackers are gone.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from bench.attacks import bodies, connections
from bench.attacks.sending import ATTACKER, MEDIA, OTHER, PLAIN, TLS, Attack, post
from bench.attacks.watch import Watch, connect, engine_of, memory_mb
from bench.client import serves
from bench.errors import BenchError
from bench.programs import Options, Program, Programs

ATTACKS: dict[str, Attack] = {**connections.ATTACKS, **bodies.ATTACKS}
SETTLE_SECONDS = 1.0
HEALTH_SECONDS = 10
AFTER_SECONDS = 3.0  # the time in which freed memory is returned
COLUMNS = ["/health p50", "p99", "max", "gap p50", "p99", "max", "lost"]
MEMORY_COLUMNS = ["front +MB", "after", "engine +MB", "after"]


def add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", required=True, help="the GGUF file")
    add("--mmproj", help="its projector; without one there are no attacks with images")
    add("--seconds", type=float, default=8.0, help="length of each attack (8)")
    add(
        "--only",
        action="append",
        choices=list(ATTACKS),
        metavar="NAME",
        help="run only this attack; may be repeated",
    )
    add("--threads", type=int, default=1, help="-t of llamad (1)")
    add("--ngl", type=int, default=0, help="layers on the device (0)")


def percentile(values: list[float], percent: float) -> float:
    """Return the value that `percent` of the sorted values do not exceed."""
    return values[min(len(values) - 1, int(len(values) * percent / 100))]


def _row(name: str, watch: Watch, grown: list[float]) -> str:
    health, gaps = sorted(watch.health), sorted(watch.gaps)
    if not health:
        raise BenchError(f"{name}: there was no response")
    figures = [percentile(health, 50), percentile(health, 99), health[-1]]
    # Because of another client's long prompt, the stream may have no second token.
    figures += [percentile(gaps, 50), percentile(gaps, 99), gaps[-1]] if gaps else [float("inf")] * 3
    cells = [f"{value:8.1f}" for value in figures] + [f"{watch.n_lost:4}"]
    return f"| {name:36} | " + " | ".join(cells + [f"{value:6.0f}" for value in grown]) + " |"


def _measure(program: Program, name: str, attack: Attack, seconds: float) -> str:
    address, is_tls = program.address, attack.server == TLS
    front, engine = program.pid, engine_of(program.pid)
    before = memory_mb(front), memory_mb(engine)
    attackers = [
        multiprocessing.Process(target=attack.run, args=(address,), daemon=True)
        for _ in range(attack.n_processes if attack.run is not None else 0)
    ]
    for one in attackers:
        one.start()
    time.sleep(SETTLE_SECONDS)
    with Watch(address, front, is_tls) as watch:
        time.sleep(seconds)
    for one in attackers:
        one.kill()
        one.join()
    if attack.undo:
        post(address, "/completion", attack.undo)
    program.wait_until(lambda: serves(connect(address, is_tls, HEALTH_SECONDS)), 0.05)
    time.sleep(AFTER_SECONDS)
    grown = [
        watch.front_mb - before[0],
        memory_mb(front) - before[0],
        watch.engine_mb - before[1],
        memory_mb(engine_of(front)) - before[1],
    ]
    return _row(name, watch, grown)


def _certificate(folder: Path) -> tuple[str, ...]:
    """Return the flags of a new certificate; none without openssl."""
    program = shutil.which("openssl")
    if program is None:
        return ()
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = [program, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return ("--ssl-key-file", str(key), "--ssl-cert-file", str(certificate))


def _flags_of(server: str, flags: argparse.Namespace, folder: Path) -> tuple[str, ...] | None:
    """Return the flags of a kind of server, or None if this machine or command line does not support it."""
    if server == TLS:
        return _certificate(folder) or None
    if server == MEDIA:
        return ("--mmproj", flags.mmproj) if flags.mmproj else None
    return ()


def _attack_all(server: str, names: list[str], flags: argparse.Namespace, folder: Path) -> None:
    more = _flags_of(server, flags, folder)
    if more is None:
        for name in names:
            print(
                f"| {name:36} | skipped: there is no {'openssl' if server == TLS else '--mmproj'} |",
                flush=True,
            )
        return
    keys = ("--api-key", ATTACKER, "--api-key", OTHER, "-ngl", str(flags.ngl), "--stall-seconds", "2")
    options = Options(flags.model, 4, 16384, flags.threads, 0, keys + more)
    program = Programs().start("llamad", options, folder)
    try:
        program.wait_until(lambda: serves(connect(program.address, server == TLS, HEALTH_SECONDS)), 0.05)
        for name in names:
            print(_measure(program, name, ATTACKS[name], flags.seconds), flush=True)
    finally:
        program.stop()


def main(flags: argparse.Namespace) -> int:
    columns = COLUMNS + MEMORY_COLUMNS
    print(f"| {'attack, ms':36} | " + " | ".join(f"{one:>8}" for one in columns) + " |", flush=True)
    print("| --- |" + " --: |" * len(columns), flush=True)
    chosen = flags.only or list(ATTACKS)
    with tempfile.TemporaryDirectory() as folder:
        for server in (PLAIN, TLS, MEDIA):
            names = [name for name in chosen if ATTACKS[name].server == server]
            if names:
                _attack_all(server, names, flags, Path(folder))
    return 0
