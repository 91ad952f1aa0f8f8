"""Measures one engine in a process of its own, which a schema may crash or keep busy for too long.

Times are CPU times of the process or the thread, so that other programs on the machine add little to them.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from bench.errors import BenchError
from bench.micro.llama_grammar import Words
from bench.schemas.engines import ENGINES, Engine, RefusedError
from llamad.engine.llama_log import LlamaLog

START_SECONDS = 120.0


@dataclass
class Walked:
    """The times of one instance, in µs a token, and whether the engine allowed all of it."""

    is_allowed: bool = True
    mask: list[float] = field(default_factory=list)  # the first walk through a newly compiled schema
    mask_again: list[float] = field(
        default_factory=list
    )  # a second walk, with whatever the engine has cached
    accept: list[float] = field(default_factory=list)


@dataclass
class Measured:
    """What came of one schema in one engine."""

    compile_ms: float = 0.0
    convert_ms: float = 0.0  # of it: JSON Schema to GBNF, in llamad
    refused_strictly: str = ""
    refused: str = ""  # also without strictness
    failed: str = ""  # the process crashed, or took too long
    walks: list[Walked] = field(default_factory=list)

    @property
    def is_compiled(self) -> bool:
        return not self.refused and not self.failed


def compiled(engine: Engine, schema: dict[str, Any], measured: Measured) -> Any:
    """Compile strictly, and without strictness if that is refused. Only what succeeds is timed."""
    t_start = time.process_time()
    try:
        out = engine.compile(schema, is_strict=True)
    except RefusedError as error:
        measured.refused_strictly = str(error) or "refused"
        if not engine.has_strict:
            raise
        t_start = time.process_time()
        out = engine.compile(schema, is_strict=False)
    measured.compile_ms = (time.process_time() - t_start) * 1e3
    measured.convert_ms = engine.convert_ms
    return out


def walk(engine: Engine, grammar: Any, tokens: list[int], accept: list[float]) -> tuple[list[float], bool]:
    """Follow a text. Return the time of each mask, and whether every token was allowed by mask and matcher."""
    matcher = engine.matcher(grammar)
    times: list[float] = []
    clock = time.thread_time_ns
    for token in tokens:
        try:
            t_start = clock()
            mask = engine.mask(matcher)
            t_masked = clock()
            is_accepted = engine.accept(matcher, token)
            t_accepted = clock()
        except RefusedError:
            return times, False
        times.append((t_masked - t_start) / 1e3)
        accept.append((t_accepted - t_masked) / 1e3)
        if not is_accepted or not engine.has_bit(mask, token):
            return times, False
    return times, True


def measure(engine: Engine, schema: dict[str, Any], texts: list[list[int]]) -> Measured:
    measured = Measured()
    try:
        grammar = compiled(engine, schema, measured)
    except RefusedError as error:
        measured.refused = str(error) or "refused"
        return measured
    measured.walks = [Walked() for _ in texts]
    for tokens, walked in zip(texts, measured.walks, strict=True):
        walked.mask, walked.is_allowed = walk(engine, grammar, tokens, [])
    for tokens, walked in zip(texts, measured.walks, strict=True):
        walked.mask_again, _ = walk(engine, grammar, tokens, walked.accept)
    return measured


def serve(name: str, vocab: str, connection: Connection) -> None:
    """Measure what comes over the connection until it is closed."""
    LlamaLog()  # keeps llama.cpp's lines off the screen
    engine = ENGINES[name](Words(vocab))
    connection.send("ready")
    os.dup2(
        os.open(os.devnull, os.O_WRONLY), 2
    )  # xgrammar writes a line for every keyword that it leaves out
    while True:
        try:
            schema, texts = connection.recv()
        except EOFError:
            return
        connection.send(measure(engine, schema, texts))


class Worker:
    """The process of one engine. It is started again after a schema that it did not survive."""

    def __init__(self, name: str, vocab: str, seconds: float) -> None:
        self.name = name
        self._vocab = vocab
        self._seconds = seconds
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(self.name, self._vocab, theirs), daemon=True)
        self._process.start()
        theirs.close()
        if not self._connection.poll(START_SECONDS):
            raise BenchError(f"{self.name} did not start within {START_SECONDS:.0f} s")
        try:
            self._connection.recv()
        except EOFError:
            raise BenchError(f"{self.name} ended while it started") from None

    def measure(self, schema: dict[str, Any], texts: list[list[int]]) -> Measured:
        try:
            self._connection.send((schema, texts))
            if self._connection.poll(self._seconds):
                out: Measured = self._connection.recv()
                return out
            failed = f"took more than {self._seconds:.0f} s"
        except (EOFError, ConnectionError):
            self._process.join()
            failed = f"ended with status {self._process.exitcode}"
        self.close()
        self._start()
        return Measured(failed=failed)

    def close(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.join()
