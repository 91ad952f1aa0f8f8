"""Measures how long the first token of a model takes that is not loaded, and tokens/s of two models at the same time.

Both programs are routers with the same preset: the same file under two names, so that its pages are in memory. They
take turns. A model is unloaded before each request for it.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shlex
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench import programs
from bench.client import Client, clock
from bench.errors import BenchError
from bench.programs import HOST, LLAMA_SERVER, LLAMAD, Options, Program, Programs

MODELS = ("one", "two")
POLL_SECONDS = 0.05
STATUS_SECONDS = 60.0


class RouterOptions(Options):
    """Options of a router; `model` is its preset."""

    def flags(self, port: int) -> list[str]:
        return ["--models-preset", self.model, "--host", HOST, "--port", str(port), *self.extra]


def add_flags(parser: argparse.ArgumentParser) -> None:
    programs.add_flags(parser)
    add = parser.add_argument
    add("--rounds", type=int, default=5, help="rounds of each program (5)")
    add("--ctx", type=int, default=2048, help="-c (2048)")
    add("--threads", type=int, help="-t (the program's own choice)")
    add("--predict", type=int, default=128, help="tokens of each stream of the two models (128)")
    add("--args", type=shlex.split, default=[], help="flags for all programs")


def _preset(flags: argparse.Namespace, folder: Path) -> str:
    lines = [f"[{name}]\nmodel = {Path(flags.model).resolve()}\nctx-size = {flags.ctx}" for name in MODELS]
    if flags.threads:
        lines = [f"{section}\nthreads = {flags.threads}" for section in lines]
    path = folder / "models.ini"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def _status(program: Program, model: str) -> str:
    connection = http.client.HTTPConnection(*program.address, timeout=STATUS_SECONDS)
    try:
        connection.request("GET", "/models")
        listed = json.loads(connection.getresponse().read())["data"]
        return str(next(one["status"]["value"] for one in listed if one["id"] == model))
    finally:
        connection.close()


def _unload(program: Program, model: str) -> None:
    if _status(program, model) == "unloaded":
        return
    Client(program.address).ask("/models/unload", {"model": model})
    t_end = time.monotonic() + STATUS_SECONDS
    while _status(program, model) != "unloaded":
        if time.monotonic() > t_end:
            raise BenchError(f"{program.name} has not unloaded a model within {STATUS_SECONDS:g} s")
        time.sleep(POLL_SECONDS)


def _body(model: str, n_predict: int) -> dict[str, Any]:
    return {
        "model": model,
        "prompt": f"The {model}:",
        "n_predict": n_predict,
        "ignore_eos": True,
        "temperature": 0.0,
    }


def _cold_ms(program: Program, model: str) -> float:
    _unload(program, model)
    t_begin = clock()
    return (Client(program.address).first_token({**_body(model, 2), "stream": True}) - t_begin) / 1e6


def _warm_ms(program: Program, model: str) -> float:
    t_begin = clock()
    return (Client(program.address).first_token({**_body(model, 2), "stream": True}) - t_begin) / 1e6


def _rate(program: Program, model: str, n_predict: int) -> float:
    reply = Client(program.address).ask("/completion", _body(model, n_predict))
    return float(reply["timings"]["predicted_per_second"])


def _both(program: Program, n_predict: int) -> float:
    """Return tokens/s of both models together."""
    with ThreadPoolExecutor(len(MODELS)) as pool:
        return sum(pool.map(lambda model: _rate(program, model, n_predict), MODELS))


def main(flags: argparse.Namespace) -> int:
    programs.check_model(flags)
    tools = Programs(flags.server)
    names = [LLAMAD, *([LLAMA_SERVER] if tools.path(LLAMA_SERVER) else [])]
    with tempfile.TemporaryDirectory(prefix="llamad-cold-") as folder:
        options = RouterOptions(
            _preset(flags, Path(folder)), 1, 0, None, 8, tuple(flags.args), is_tuned=False
        )
        started = [tools.start(name, options, Path(folder)) for name in names]
        try:
            figures: dict[str, list[tuple[float, ...]]] = {name: [] for name in names}
            for program in started:
                program.wait_ready()
            for index in range(flags.rounds + 1):
                for program in started if index % 2 == 0 else reversed(started):
                    cold, warm = _cold_ms(program, MODELS[0]), _warm_ms(program, MODELS[0])
                    alone = _rate(program, MODELS[0], flags.predict)
                    _warm_ms(program, MODELS[1])
                    row = cold, warm, alone, _both(program, flags.predict)
                    if index:  # the first round fills caches
                        figures[program.name].append(row)
        finally:
            for program in started:
                program.stop()
    print("| program | first token of a cold model, ms | of a warm one | tokens/s of one | of two together |")
    print("| --- | --: | --: | --: | --: |")
    for name, rows in figures.items():
        cold, warm, alone, both = (statistics.median(values) for values in zip(*rows, strict=True))
        print(f"| {name} | {cold:,.0f} | {warm:,.0f} | {alone:,.1f} | {both:,.1f} |", flush=True)
    return 0
