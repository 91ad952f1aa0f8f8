"""Compares what --fit chooses in llamad and in llama-server, for the same file and flags.

For llamad, `llamad check --json` reports it. llama-server is started and killed as soon as its log has its context and
its layers. --workers starts RPC workers on this machine, which simulate GPUs; --fit-target makes them smaller.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench import programs
from bench.errors import BenchError
from bench.programs import LLAMA_SERVER, Programs, free_port

WAIT_SECONDS = 120.0


def add_flags(parser: argparse.ArgumentParser) -> None:
    programs.add_flags(parser)
    add = parser.add_argument
    add("--workers", type=int, default=0, help="RPC workers (0)")
    add("--args", action="append", default=[], help="a set of flags, quoted; may be repeated")


@contextmanager
def workers(n: int) -> Iterator[list[str]]:
    """Run n RPC workers, and yield the flags with their endpoints."""
    ports = [free_port() for _ in range(n)]
    command = [sys.executable, "-m", "llamad", "rpc-server", "--port"]
    running = [
        subprocess.Popen([*command, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for port in ports
    ]
    try:
        for port in ports:
            _await(port)
        yield ["--rpc", ",".join(f"127.0.0.1:{port}" for port in ports)] if n else []
    finally:
        for one in running:
            one.terminate()
            one.wait()


def _await(port: int) -> None:
    t_end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < t_end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise BenchError("an RPC worker does not listen")


def llamad(flags: list[str]) -> str:
    command = [sys.executable, "-m", "llamad", "check", "--json", *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return "refused: " + done.stderr.strip()[:200]
    report = json.loads(done.stdout)
    n_experts = re.search(r"the experts of (\d+) of them", report["fit"])
    return _summary(
        report["n_ctx"], report["layers_offloaded"], report["n_layers"], n_experts and n_experts[1]
    )


def _summary(n_ctx: object, n_layers: object, n_all: object, n_experts: object) -> str:
    experts = f", experts of {n_experts} in RAM" if n_experts else ""
    return f"{n_ctx} tokens, {n_layers} of {n_all} layers{experts}"


def llama_server(path: str, flags: list[str]) -> str:
    command = [path, *flags, "--port", str(free_port()), "-lv", "5", "--no-warmup"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    assert process.stdout is not None
    log, t_end, has_fit = "", time.monotonic() + WAIT_SECONDS, False
    for line in process.stdout:
        log += line
        # Before that, it loads the model many times without memory.
        has_fit = has_fit or "fitting params to free memory took" in line
        if has_fit and re.search(r"llama_context: n_ctx +=", line):
            break
        if time.monotonic() > t_end:
            break
    process.kill()
    process.wait()
    contexts = re.findall(r"llama_context: n_ctx += *(\d+)", log)
    layers = re.findall(r"offloaded (\d+)/(\d+) layers", log)
    experts = re.findall(r"\(n_layer, n_part(?:, overflow_type)?\)=\((\d+), (\d+)", log)
    if not contexts or not layers:
        return "did not say: " + log[-200:].replace("\n", " ")
    n_layers = layers[-1][0] if "using device " in log else 0  # it counts them even without a GPU
    return _summary(contexts[-1], n_layers, layers[-1][1], experts[-1][1] if experts else None)


def main(flags: argparse.Namespace) -> int:
    path = Programs(server=flags.server).require(LLAMA_SERVER)
    print("| flags | llama-server | llamad |\n| --- | --- | --- |", flush=True)
    for words in flags.args or [""]:
        given = ["-m", str(flags.model), *shlex.split(words)]
        with workers(flags.workers) as rpc:
            peer = llama_server(path, [*given, *rpc])
            own = llamad([*given, *rpc])
        print(f"| {words} | {peer} | {own} |", flush=True)
    return 0
