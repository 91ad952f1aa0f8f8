"""Measures the MB/s of saving and restoring a slot in the engine, without HTTP.

The gap is how long the engine did nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import struct
import time

from bench import programs
from bench.errors import BenchError
from bench.state import Row, add_flags, show
from llamad.client.events import Done
from llamad.client.task import RequestContext, Task
from llamad.flags.parse import parse
from llamad.models.host import Host
from llamad.options.table import Options
from llamad.protocol.sampling_params import Sampling

__all__ = ["add_flags", "main"]

# The sampling of a task that only prefills.
NO_SAMPLING = Sampling((), Options(repeat_last_n=0, dry_penalty_last_n=0), seed=0)


class _Sink:
    def __init__(self) -> None:
        self.done: asyncio.Future[Done] = asyncio.get_running_loop().create_future()

    def on_admitted(self, slot: int, n_cached: int, t_us: int) -> None:
        pass

    def on_text(self, *_: object) -> None:
        pass

    def on_prompt(self, *args: object) -> None:
        pass

    def on_progress(self, *args: object) -> None:
        pass

    def on_done(self, done: Done) -> None:
        self.done.set_result(done)

    def on_failed(self, failure: int, code: int) -> None:
        self.done.set_exception(BenchError(f"reading failed ({failure}, {code})"))

    def on_broken(self) -> None:
        self.on_failed(0, 0)


async def measure_engine(flags: argparse.Namespace) -> list[Row]:
    """Save and restore without the endpoints; the gap is how long the engine did nothing else."""
    host = Host(parse(engine_flags(flags), {}).settings.model)
    await host.load()
    if host.engine is None or host.states is None:
        raise BenchError(f"the model cannot be measured: {host.error}")
    tokens = [200 + i * 7 % 3000 for i in range(flags.tokens)]
    sink = _Sink()
    prompt = struct.pack(f"<{len(tokens)}i", *tokens)
    options = Options(id_slot=0, n_predict=0)
    host.engine.submit(Task(RequestContext("bench"), prompt, NO_SAMPLING, options), sink)
    await sink.done
    rows = [Row("engine", name, 0) for name in ("save", "restore")]
    for _ in range(flags.rounds):
        t_begin = time.perf_counter()
        saved = await host.states.save(0)
        t_saved = time.perf_counter()
        restored = await host.states.restore(1, saved.blob)
        t_end = time.perf_counter()
        for row, seconds, stall_us in (
            (rows[0], t_saved - t_begin, saved.stall_us),
            (rows[1], t_end - t_saved, restored.stall_us),
        ):
            row.n_bytes = saved.blob.size
            row.seconds.append(seconds)
            row.gaps.append(stall_us / 1e6)
    await host.close()
    return rows


def engine_flags(flags: argparse.Namespace) -> list[str]:
    return ["-m", flags.model, "-t", str(flags.threads), "-c", str(flags.ctx), "-np", "2", "--slots"]


def main(flags: argparse.Namespace) -> int:
    programs.check_model(flags)
    show(asyncio.run(measure_engine(flags)), flags)
    return 0
