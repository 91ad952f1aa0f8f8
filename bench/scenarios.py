"""The requests of each scenario: its points, each of which is a row of the report.

Runs in the bench's process. It makes requests from prompts before anything is timed; then the generator sends them.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench import load
from bench.harness import Point
from bench.load import Group
from bench.programs import Options, Program
from bench.prompts import CHAT, Prompt, Prompts
from bench.stats import Measures, divide

CONTEXT_STEP = 256
TEMPLATE_TOKENS = 64  # room for the tokens of a chat template
# Prompts for different purposes have different numbers.
WARM_UP_START, SIDE_START, OWN_START = 20_000, 24_000, 28_000
WARM_UP_PREDICT, SIDE_PREDICT = 16, 4
N_SIDE_BODIES = 256
N_TEXTS = 8_192  # texts for /tokenize

# scenario -> its measures, the first of which is compared over all points
MEASURES = {
    "tokens": ("decode_tokens_per_s", "steady_tokens_per_s", "tokens_per_s", "first_mean_ms", "gap_p50_ms",
               "gap_p99_ms"),
    "loop": ("tokens_per_s", "first_p50_ms", "first_p99_ms", "gap_p50_ms", "gap_p99_ms"),
    "ttft": ("first_mean_ms", "first_p50_ms", "first_p99_ms", "tokens_per_s", "prompt_tokens"),
    "gap": ("gap_p99_over_p50", "gap_p50_ms", "gap_p99_ms", "gap_max_ms", "side_prompts_per_s", "decode_tokens_per_s"),
    "prefix": ("first_mean_ms", "first_p99_ms", "prompt_computed", "prompt_tokens", "wall_s"),
    "requests": ("requests_per_s", "latency_p50_ms", "latency_p99_ms", "latency_max_ms", "answers_broken"),
    "idle": ("server_cpu",),
    "startup": ("start_first_ms", "health_ms", "listening_ms", "start_cpu_ms"),
    "memory": ("worked_rss", "worked_pss", "worked_own", "loaded_rss", "loaded_pss", "loaded_own", "idle_rss",
               "idle_pss", "idle_own", "idle_threads", "idle_answered", "idle_again", "fresh_ms", "fresh_failed"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Load:
    """The requests of a point: before the rounds, in each round, and at the same time as the rounds."""

    warm_up: Group
    rounds: list[Group]
    side: Group | None = None
    n_each: int = 1


class StreamPoint(Point):
    """A point of streamed completions. The first server that is ready tokenizes the requests; all get the same."""

    def __init__(
        self, name: str, options: Options, flags: argparse.Namespace, make: Callable[[Program], Load]
    ) -> None:
        super().__init__(name, options, flags.rounds)
        self.flags = flags
        self._make = make
        self._load: Load | None = None

    def load(self, program: Program) -> Load:
        if self._load is None:
            self._load = self._make(program)
        return self._load

    def prepare(self, program: Program) -> None:
        load.streams(program.port, self.load(program).warm_up, timeout_s=self.flags.timeout)

    def measure(self, program: Program, index: int) -> Measures:
        sent = self.load(program)
        timeout_s = self.flags.timeout
        measures = load.streams(program.port, sent.rounds[index], sent.side, timeout_s, sent.n_each)
        return measures | {
            "gap_p99_over_p50": divide(measures["gap_p99_ms"], measures["gap_p50_ms"]),
            "side_prompts_per_s": divide(measures["side_prompt_tokens"], measures["wall_s"]),
        }


class RequestPoint(StreamPoint):
    """A point of short requests that need no step of the model, beside streams or alone."""

    def measure(self, program: Program, index: int) -> Measures:
        flags, sent = self.flags, self.load(program)
        how = (flags.load_threads, flags.rate)
        return load.requests(program.port, sent.rounds[index], flags.seconds, sent.side, flags.timeout, *how)


class IdlePoint(Point):
    """A point of idle servers: the CPU shares of the round are the result."""

    def __init__(self, name: str, options: Options, flags: argparse.Namespace) -> None:
        super().__init__(name, options, flags.rounds)
        self._seconds = flags.seconds

    def measure(self, program: Program, index: int) -> Measures:
        time.sleep(self._seconds)
        return {}


def body(flags: argparse.Namespace, index: int, prompt: Prompt, n_predict: int) -> dict[str, Any]:
    """Return a streamed completion for the dialect of --endpoint, without a cached prompt, that does not end early."""
    common: dict[str, Any] = {
        "stream": True,
        "ignore_eos": True,
        "cache_prompt": False,
        "seed": flags.seed + index,
    }
    if flags.lora:
        common["lora"] = [{"id": index % flags.lora_sets, "scale": 1.0}]
    if flags.endpoint == "/completion":
        ours = {"prompt": prompt, "n_predict": n_predict, "return_tokens": True}
        return {**common, **ours, **flags.options}
    usage = {"max_tokens": n_predict, "stream_options": {"include_usage": True}}
    if flags.endpoint == CHAT:
        return {**common, **usage, "messages": [{"role": "user", "content": prompt}], **flags.options}
    return {**common, **usage, "prompt": prompt, **flags.options}


def length(n_prompt: int, shorter: float, seed: int, index: int) -> int:
    """Return the tokens of one prompt: each is shorter by a random share, up to `shorter`."""
    return max(1, round(n_prompt * (1 - shorter * random.Random(f"{seed} {index}").random())))


def context_of(flags: argparse.Namespace, n_tokens: int) -> int:
    """Return the tokens that a slot needs for a request of `n_tokens`, prompt and prediction."""
    if flags.ctx is not None:
        return int(flags.ctx)
    more = TEMPLATE_TOKENS if flags.endpoint == CHAT else 16
    return math.ceil((n_tokens + more) / CONTEXT_STEP) * CONTEXT_STEP


def server_args(flags: argparse.Namespace) -> tuple[str, ...]:
    adapters = (word for path in flags.lora for word in ("--lora", path))
    unused = ("--lora-init-without-apply",) if flags.lora else ()  # requests that name none use none
    return ("-fa", "on", "-ngl", str(flags.ngl), *unused, *adapters, *flags.args)


def options_of(flags: argparse.Namespace, n_slots: int, n_tokens: int, n_connections: int) -> Options:
    if flags.slots is not None:
        n_slots = flags.slots[0]
    n_ctx = context_of(flags, n_tokens) * n_slots
    return Options(str(flags.model), n_slots, n_ctx, flags.threads, n_connections, server_args(flags))


class Maker:
    """Makes the points of the scenarios that send load to servers that are ready."""

    def __init__(self, flags: argparse.Namespace, prompts: Prompts) -> None:
        self.flags = flags
        self.prompts = prompts

    def bodies(self, n: int, n_prompt: int, n_predict: int, start: int = 0) -> list[Any]:
        flags, bodies = self.flags, []
        for index in range(start, start + n):
            prompt = self.prompts.prompt(index, length(n_prompt, flags.shorter, flags.seed, index))
            bodies.append(body(flags, index, prompt, n_predict))
        return bodies

    def warm_up(self, n_streams: int) -> Group:
        """Return requests that make the server read pages, capture graphs and adapt its budgets before it is timed."""
        n_predict = min(WARM_UP_PREDICT, self.flags.predict)
        sent = self.bodies(n_streams, self.flags.prompt_tokens, n_predict, WARM_UP_START)
        return Group(n_streams, sent, self.flags.endpoint)

    def rounds(self, n: int, bodies: list[Any]) -> list[Group]:
        """Split the requests between the rounds."""
        per_round = len(bodies) // self.flags.rounds
        return [
            Group(n, bodies[i * per_round : (i + 1) * per_round], self.flags.endpoint)
            for i in range(self.flags.rounds)
        ]

    def streams(self, n: int) -> Point:
        """Return a point of n streams at once, each with another prompt."""
        flags = self.flags

        def make(program: Program) -> Load:
            self.prompts.learn(program.client)
            sent = self.bodies(n * flags.rounds, flags.prompt_tokens, flags.predict)
            return Load(self.warm_up(n), self.rounds(n, sent))

        options = options_of(flags, n, flags.prompt_tokens + flags.predict, n)
        return StreamPoint(f"{n} stream{'s' if n > 1 else ''}", options, flags, make)

    def loop(self, n: int) -> Point:
        """Return a point of streams that each send the next request as soon as the last is done. Lengths differ by up
        to a quarter, so that prompts arrive while other streams decode."""
        flags, quarter = self.flags, self.flags.predict // 4

        def make(program: Program) -> Load:
            self.prompts.learn(program.client)
            sent = []
            rng = random.Random(f"{flags.seed}/{n}")
            for index in range(n * flags.each * flags.rounds):
                n_predict = flags.predict + rng.randint(-quarter, quarter)
                sent += self.bodies(1, flags.prompt_tokens, n_predict, index)
            return Load(self.warm_up(n), self.rounds(n, sent), n_each=flags.each)

        options = options_of(flags, n, flags.prompt_tokens + flags.predict + quarter, n)
        return StreamPoint(f"{n} stream{'s' if n > 1 else ''}, {flags.each} each", options, flags, make)

    def gap(self, n: int) -> Point:
        """Return a point of streams that decode while long prompts keep arriving."""
        flags = self.flags
        n_long, n_side = flags.long_prompt, flags.arriving

        def make(program: Program) -> Load:
            self.prompts.learn(program.client)
            sent = self.bodies(n * flags.rounds, flags.prompt_tokens, flags.predict)
            side = self.bodies(N_SIDE_BODIES, n_long, SIDE_PREDICT, SIDE_START)
            return Load(self.warm_up(n), self.rounds(n, sent), Group(n_side, side, flags.endpoint))

        longest = max(flags.prompt_tokens + flags.predict, n_long + SIDE_PREDICT)
        options = options_of(flags, n + n_side, longest, n + n_side)
        return StreamPoint(f"{n} decoding, {n_side} x {n_long} arriving", options, flags, make)

    def prefix(self, n: int) -> Point:
        """Return a point of n streams at once, with a common long prefix that is new in each round."""
        flags = self.flags

        def make(program: Program) -> Load:
            self.prompts.learn(program.client)
            sent = []
            for r in range(flags.rounds):
                prefix = self.prompts.prompt(r, flags.prefix)
                for i in range(n):
                    own = self.prompts.prompt(OWN_START + r * n + i, flags.prompt_tokens)
                    whole = joined(prefix, own)
                    sent.append({**body(flags, i, whole, flags.predict), "cache_prompt": True})
            return Load(self.warm_up(n), self.rounds(n, sent))

        options = options_of(flags, n, flags.prefix + flags.prompt_tokens + flags.predict, n)
        return StreamPoint(f"{n} with a prefix of {flags.prefix}", options, flags, make)

    def requests(self, n: int) -> list[Point]:
        """Return points of requests that need no step of the model, beside `n` streams that decode."""
        return [self._request_point(path, n) for path in ("/health", "/tokenize", "/detokenize")]

    def _request_point(self, path: str, n: int) -> Point:
        flags, prompts = self.flags, self.prompts

        def make(program: Program) -> Load:
            prompts.learn(program.client)
            sent: list[Any] = []
            if path == "/tokenize":
                texts = (prompts.about(i, flags.prompt_tokens, flags.coined) for i in range(N_TEXTS))
                sent = [{"content": text} for text in texts]
            elif path == "/detokenize":
                sent = [{"tokens": prompts.ids(i, flags.prompt_tokens)} for i in range(N_TEXTS)]
            side = None
            if n:
                bodies = self.bodies(N_SIDE_BODIES, flags.prompt_tokens, flags.predict)
                side = Group(n, bodies, flags.endpoint)
            main = Group(flags.connections, sent, path)
            return Load(self.warm_up(max(1, n)), [main] * flags.rounds, side)

        options = options_of(flags, max(1, n), flags.prompt_tokens + flags.predict, flags.connections + n)
        return RequestPoint(f"{path}, {n} streams beside it" if n else path, options, flags, make)

    def idle(self, n: int) -> Point:
        options = options_of(self.flags, n, self.flags.prompt_tokens, n)
        return IdlePoint(f"{n} slot{'s' if n > 1 else ''}", options, self.flags)


def joined(prefix: Prompt, own: Prompt) -> Prompt:
    if isinstance(prefix, str) or isinstance(own, str):
        return f"{prefix}\n\n{own}"
    return prefix + own


def points(flags: argparse.Namespace, prompts: Prompts) -> list[Point]:
    maker = Maker(flags, prompts)
    if flags.scenario == "requests":
        return [point for n in flags.streams for point in maker.requests(n)]
    make = {"gap": maker.gap, "prefix": maker.prefix, "loop": maker.loop, "idle": maker.idle}
    return [make.get(flags.scenario, maker.streams)(n) for n in flags.streams]
