"""Measures the first token of a long conversation that goes on, by where its state is when it does.

One slot, one conversation after the other. Each first token is that of the conversation and a short question. The state
is in the slot; in host memory, because another prompt has the slot; on disk, because the daemon was restarted; or
nowhere, so that everything is computed. Files are dropped from the system's page cache before they are read. The same
files are also read by themselves, as fast as the disk gives them: where computing is faster, the daemon computes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shlex
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from bench import programs
from bench.client import Client, clock
from bench.errors import BenchError
from bench.programs import LLAMAD, Options, Program, Programs

QUESTION_TOKENS = 16
OTHER_TOKENS = 600  # of the prompt that takes the slot
QUIET_SECONDS = 3.0  # nothing more is written to disk once nothing was for so long
REREAD, SLOT, HOST, DISK = "computed again", "slot", "host memory", "disk, after a restart"
FILES = "(only reading the files)"
N_READERS = 8  # threads
PIECE_BYTES = 1 << 20
COLUMNS = "| tokens | state in | first token, ms | share of computing | tokens computed | MiB on disk |"


def add_flags(parser: argparse.ArgumentParser) -> None:
    programs.add_flags(parser)
    add = parser.add_argument
    add("--tokens", type=int, nargs="+", default=[8000, 32000], help="tokens of a conversation (8000 32000)")
    add("--repeat", type=int, default=3, help="first tokens of each tier, of which the median counts (3)")
    add("--rereads", type=int, default=1, help="the same for what is computed again (1)")
    add("--threads", type=int, help="-t (the program's own choice)")
    add("--ids", type=int, default=32000, help="prompts have token ids below this (32000)")
    add("--folder", type=Path, help="where the folder of the disk cache is made (the temporary folder)")
    add("--args", type=shlex.split, default=["-ngl", "99"], help="flags of llamad (-ngl 99)")
    add("--seed", type=int, default=1)


@dataclass(slots=True)
class Tier:
    """First tokens, and how many tokens of the prompt were computed for each."""

    ms: list[float] = field(default_factory=list)
    n_computed: list[int] = field(default_factory=list)


class Conversation:
    """One conversation. `folder` is that of the disk cache, which has nothing else."""

    def __init__(self, flags: argparse.Namespace, n_tokens: int, logs: Path, folder: Path) -> None:
        self.flags = flags
        self.n_tokens = n_tokens
        self.folder = folder
        self.tiers = {name: Tier() for name in (REREAD, SLOT, HOST, DISK, FILES)}
        self._logs = logs
        self._draw = random.Random(f"{flags.seed} {n_tokens}")
        self._text = self._ids(n_tokens)

    def _ids(self, n: int) -> list[int]:
        return [self._draw.randrange(100, self.flags.ids) for _ in range(n)]

    @contextlib.contextmanager
    def _daemon(self) -> Iterator[Program]:
        n_ctx = self.n_tokens + OTHER_TOKENS + 1024
        extra = (*self.flags.args, "--cache-disk", str(self.folder))
        options = Options(self.flags.model, 1, n_ctx, self.flags.threads, 1, extra, is_tuned=False)
        program = Programs().start(LLAMAD, options, self._logs)
        try:
            program.wait_ready()
            self._ask(program, self._ids(8))  # the first request of all takes longer
            yield program
        finally:
            program.stop()

    def _ask(self, program: Program, prompt: list[int], tier: str = "", **more: object) -> int:
        """Return how many tokens were computed."""
        client = Client(program.address, timeout_s=3600.0)
        body = {"prompt": prompt, "n_predict": 1, "temperature": 0.0, "cache_prompt": True, **more}
        t_begin = clock()
        timings = client.ask("/completion", body)["timings"]
        ms = (clock() - t_begin) / 1e6
        client.close()
        n_computed = int(timings["prompt_n"])
        if tier:
            self.tiers[tier].ms.append(ms)
            self.tiers[tier].n_computed.append(n_computed)
        return n_computed

    def _go_on(self, program: Program, tier: str, **more: object) -> None:
        self._ask(program, self._text + self._ids(QUESTION_TOKENS), tier, **more)

    def measure(self) -> None:
        with self._daemon() as program:
            self._go_on(program, REREAD)
            for _ in range(1, self.flags.rereads):
                self._go_on(program, REREAD, cache_prompt=False)
            for _ in range(self.flags.repeat):
                self._go_on(program, SLOT)
            for _ in range(self.flags.repeat):
                self._ask(program, self._ids(OTHER_TOKENS))
                self._go_on(program, HOST)
            self._wait_written()
        for _ in range(self.flags.repeat):
            self._drop_pages()
            with self._daemon() as program:
                self._go_on(program, DISK)
            self._drop_pages()
            self._read_files()
        computes = (REREAD, DISK) if self._ms(REREAD) < self._ms(FILES) else (REREAD,)
        most = self.n_tokens // 10
        for name, tier in self.tiers.items():
            if name not in computes and max(tier.n_computed) > most:
                times = f"computing takes {self._ms(REREAD):,.0f} ms, reading {self._ms(FILES):,.0f} ms"
                raise BenchError(f"{name}: {max(tier.n_computed):,} tokens were computed again; {times}")

    def _ms(self, tier: str) -> float:
        return statistics.median(self.tiers[tier].ms)

    def _read_files(self) -> None:
        """Read all files once, in several threads, as the daemon does, but do nothing with them."""

        def read(path: Path) -> None:
            piece = bytearray(PIECE_BYTES)
            with path.open("rb", buffering=0) as file:
                while file.readinto(piece):
                    pass

        with ThreadPoolExecutor(N_READERS) as threads:
            t_begin = clock()
            list(threads.map(read, self._files()))
            self.tiers[FILES].ms.append((clock() - t_begin) / 1e6)
        self.tiers[FILES].n_computed.append(0)

    def _files(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()]

    @property
    def n_bytes(self) -> int:
        total = 0
        for path in self._files():
            with contextlib.suppress(FileNotFoundError):  # the daemon has just given it its name
                total += path.stat().st_size
        return total

    def _wait_written(self) -> None:
        n_bytes, t_changed = -1, clock()
        while (clock() - t_changed) / 1e9 < QUIET_SECONDS or not n_bytes:
            if self.n_bytes != n_bytes:
                n_bytes, t_changed = self.n_bytes, clock()
            time.sleep(0.1)

    def _drop_pages(self) -> None:
        """Let the next daemon read from the disk, as far as the system follows the advice."""
        for path in self._files():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def rows(self) -> Iterator[str]:
        for name, tier in self.tiers.items():
            ms = self._ms(name)
            n_mib = f"{self.n_bytes / (1 << 20):,.0f}" if name == DISK else ""
            yield (
                f"| {self.n_tokens:,} | {name} | {ms:,.1f} | {ms / self._ms(REREAD):.2%} "
                f"| {max(tier.n_computed):,} | {n_mib} |"
            )


def main(flags: argparse.Namespace) -> int:
    programs.check_model(flags)
    print(COLUMNS)
    print("| --: | --- | --: | --: | --: | --: |", flush=True)
    for n_tokens in flags.tokens:
        with (
            tempfile.TemporaryDirectory(prefix="llamad-tiers-") as logs,
            tempfile.TemporaryDirectory(prefix="llamad-tiers-", dir=flags.folder) as folder,
        ):
            conversation = Conversation(flags, n_tokens, Path(logs), Path(folder))
            conversation.measure()
            print("\n".join(conversation.rows()), flush=True)
    return 0
