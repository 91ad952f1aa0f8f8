"""Measures what the engine adds to a step of a GPU: the time from the logits to the next decode, and its parts.

A fake GPU computes, in this process: a decode returns at once, and its logits are there after --device-us, in no core's
cache. It needs no model. `sample`, `emit` and `plan` are the engine's own clocks, in whole microseconds.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time

from bench.errors import BenchError
from bench.flags import numbers
from llamad.client.command import Command
from llamad.client.events import Done, Failed, Step
from llamad.client.port import Port
from llamad.client.task import RequestContext, Task
from llamad.engine.core import Core
from llamad.engine.loading.threads import sampler_threads
from llamad.engine.testing.fake import Fake
from llamad.options.table import Options
from llamad.protocol.sampling_params import Sampling
from llamad.tokenizer.vocab import Vocab

CHAIN = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")
N_CTX = 4096
SEED = 7
N_FIRST = 20  # steps that load code
TIMEOUT_S = 300
PARTS = ("sample_us", "emit_us", "plan_us")


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--streams", type=numbers, default=[1, 8], help="streams at once, a list (1,8)")
    parser.add_argument(
        "--threads", type=int, default=0, help="sampler threads (as many as the daemon would have)"
    )
    parser.add_argument("--n-vocab", type=int, default=128_256)
    parser.add_argument("--device-us", type=int, default=1260, help="how long the GPU computes (1260)")
    parser.add_argument("--predict", type=int, default=1000, help="tokens of each stream (1000)")


def measure(flags: argparse.Namespace, n_streams: int) -> tuple[list[float], list[Step]]:
    """Return the idle times of the GPU in µs, and the engine's record of each step."""
    fake = Fake(
        n_ctx=N_CTX,
        n_batch=64,
        n_seqs=n_streams,
        device_us=flags.device_us,
        n_vocab=flags.n_vocab,
        chaos=SEED,
    )
    vocab = Vocab(fake.table, fake.vocab, fake.n_vocab)
    core = Core(
        vocab,
        fake.ctx,
        n_slots=n_streams,
        n_ctx=N_CTX,
        n_cells=0,
        n_batch=64,
        n_ubatch=64,
        n_swa=0,
        add_bos=True,
        similarity_min=0.5,
        step_tokens_max=0,
        n_sampler_threads=sampler_threads(flags.threads, n_streams, has_device=True),
        cont_batching=True,
        tracing=True,
        has_device=True,
    )
    port = Port(core.link)
    thread = threading.Thread(target=core.run, daemon=True)
    thread.start()
    options = Options(n_predict=flags.predict, ignore_eos=True, dry_penalty_last_n=N_CTX)
    for i in range(n_streams):
        prompt = vocab.tokenize(b"stream %d" % i, True, True)
        sampling = Sampling(CHAIN, options, SEED + i)
        port.submit(
            i + 1, Command(Task(RequestContext("bench"), prompt, sampling, options=options, stream=True))
        )
    steps = _collect(port, n_streams)
    port.stop()
    thread.join()
    return fake.idle_us[N_FIRST:], [step for step in steps if step.n_decoding == n_streams][N_FIRST:]


def _collect(port: Port, n_tasks: int) -> list[Step]:
    """Read events as the front does until every task has ended."""
    steps: list[Step] = []
    t_end = time.monotonic() + TIMEOUT_S
    while n_tasks:
        if time.monotonic() > t_end:
            raise BenchError("the engine did not finish")
        time.sleep(0.001)
        for _, _, event in port.poll():
            if isinstance(event, Failed):
                raise BenchError(f"a task failed ({event.failure}, {event.code})")
            n_tasks -= isinstance(event, Done)
            if isinstance(event, Step):
                steps.append(event)
    return steps


def main(flags: argparse.Namespace) -> int:
    print(
        f"{'streams':>7} {'idle p10':>9} {'p50':>7} {'p90':>7} {'sample':>7} {'emit':>5} {'plan':>5}   µs per step"
    )
    for n_streams in flags.streams:
        idle, steps = measure(flags, n_streams)
        p10, *_, p90 = statistics.quantiles(idle, n=10)
        sample, emit, plan = (statistics.mean(getattr(step, part) for step in steps) for part in PARTS)
        print(
            f"{n_streams:7} {p10:9.1f} {statistics.median(idle):7.1f} {p90:7.1f} "
            f"{sample:7.1f} {emit:5.1f} {plan:5.1f}",
            flush=True,
        )
    return 0
