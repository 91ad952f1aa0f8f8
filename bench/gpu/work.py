"""Owns what each scenario of `bench/gpu run` sends: its points, each a row of the table.

Pure functions from flags to groups of requests. Every prompt begins with an id of its own, so that no cache helps but
where a shared prefix is what is measured.
"""

from __future__ import annotations

import argparse
import math
import random
from dataclasses import dataclass
from typing import Any

from bench import prompts
from bench.compiled import Group

CONTEXT_STEP = 256
# Prompts of different purpose come from different parts of the same row.
WARM_UP_START, SIDE_START = 20_000, 24_000
WARM_UP_PREDICT = 16
N_SIDE_BODIES = 256
CHAT = "/v1/chat/completions"

# What a scenario takes where the flag is not given.
DEFAULTS: dict[str, dict[str, Any]] = {
    "streams": {"streams": [1, 8, 32, 64], "prompt_tokens": 64, "predict": 128},
    "ttft": {"streams": [8, 64], "prompt_tokens": 512, "predict": 32},
    "gap": {"streams": [8, 32], "prompt_tokens": 64, "predict": 512},
    "prefix": {"streams": [64], "prompt_tokens": 32, "predict": 32},
    "requests": {"streams": [0, 32], "prompt_tokens": 64, "predict": 128},
}


@dataclass(frozen=True, slots=True)
class Point:
    """A row: how a server is started for it, and what it is then sent."""

    name: str
    n_streams: int
    n_slots: int
    n_ctx_slot: int
    warm_up: Group
    main: Group
    side: Group | None = None
    is_requests: bool = False

    @property
    def n_connections(self) -> int:
        return self.main.n_connections + (self.side.n_connections if self.side else 0)

    def round(self, i: int) -> Group:
        """What one round of several sends: other prompts than the others."""
        n = self.main.n_connections
        sent = self.main.bodies[i * n : (i + 1) * n] if not self.is_requests else self.main.bodies
        return Group(n, sent, self.main.path)


def body(flags: argparse.Namespace, index: int, ids: list[int], n_predict: int) -> dict[str, Any]:
    """A streamed completion that does not end early, for the dialect of --path."""
    common = {"stream": True, "ignore_eos": True, "seed": flags.seed + index}
    if flags.path == "/completion":
        ours = {"prompt": ids, "n_predict": n_predict, "cache_prompt": False, "return_tokens": True}
        return {**common, **ours, **flags.options}
    usage = {"max_tokens": n_predict, "stream_options": {"include_usage": True}}
    if flags.path == CHAT:
        text = prompts.text(index, len(ids), flags.seed)
        return {**common, **usage, "messages": [{"role": "user", "content": text}], **flags.options}
    return {**common, **usage, "prompt": ids, **flags.options}


def bodies(flags: argparse.Namespace, n: int, n_prompt: int, n_predict: int, start: int = 0) -> list[Any]:
    found = []
    for index in range(start, start + n):
        ids = prompts.ids(index, length(n_prompt, flags.shorter, flags.seed, index), flags.seed, flags.ids)
        found.append(body(flags, index, ids, n_predict))
    return found


def length(n_prompt: int, shorter: float, seed: int, index: int) -> int:
    """Of one prompt: each is shorter by a part of its own, up to this one."""
    return max(1, round(n_prompt * (1 - shorter * random.Random(f"{seed} {index}").random())))


def context_of(flags: argparse.Namespace, n_tokens: int) -> int:
    """Room for one request in a slot; a chat's template and words of more than one token are allowed for."""
    if flags.ctx is not None:
        return int(flags.ctx)
    more = n_tokens // 4 + 64 if flags.path == CHAT else 16
    return math.ceil((n_tokens + more) / CONTEXT_STEP) * CONTEXT_STEP


def warm_up(flags: argparse.Namespace, n_streams: int, n_prompt: int) -> Group:
    """Pages are read, graphs are captured and budgets are learnt before anything is timed."""
    n_predict = min(WARM_UP_PREDICT, flags.predict)
    return Group(n_streams, bodies(flags, n_streams, n_prompt, n_predict, WARM_UP_START), flags.path)


def stream_point(flags: argparse.Namespace, n: int) -> Point:
    """All at once, each with a prompt of its own."""
    sent = bodies(flags, n * flags.rounds, flags.prompt_tokens, flags.predict)
    return Point(
        name=f"{n} stream{'s' if n > 1 else ''}",
        n_streams=n,
        n_slots=flags.np or n,
        n_ctx_slot=context_of(flags, flags.prompt_tokens + flags.predict),
        warm_up=warm_up(flags, n, flags.prompt_tokens),
        main=Group(n, sent, flags.path),
    )


def gap_point(flags: argparse.Namespace, n: int) -> Point:
    """Streams that write, while long prompts keep arriving."""
    n_long, n_side = flags.long_prompt, flags.arriving
    sent = bodies(flags, n * flags.rounds, flags.prompt_tokens, flags.predict)
    side = bodies(flags, N_SIDE_BODIES, n_long, 4, SIDE_START)
    longest = max(flags.prompt_tokens + flags.predict, n_long + 4)
    return Point(
        name=f"{n} writing, {n_side} x {n_long} arriving",
        n_streams=n,
        n_slots=flags.np or n + n_side,
        n_ctx_slot=context_of(flags, longest),
        warm_up=warm_up(flags, n, flags.prompt_tokens),
        main=Group(n, sent, flags.path),
        side=Group(n_side, side, flags.path),
    )


def prefix_point(flags: argparse.Namespace, n: int) -> Point:
    """All at once, with one long prefix in common that nobody has seen before."""
    sent = []
    for r in range(flags.rounds):
        prefix = prompts.ids(r, flags.prefix, flags.seed, flags.ids)
        for i in range(n):
            own = prompts.ids(r * n + i, flags.prompt_tokens, flags.seed + 1, flags.ids)
            sent.append({**body(flags, i, prefix + own, flags.predict), "cache_prompt": True})
    return Point(
        name=f"{n} with a prefix of {flags.prefix}",
        n_streams=n,
        n_slots=flags.np or n,
        n_ctx_slot=context_of(flags, flags.prefix + flags.prompt_tokens + flags.predict),
        warm_up=warm_up(flags, n, flags.prompt_tokens),
        main=Group(n, sent, flags.path),
    )


def request_points(flags: argparse.Namespace, n: int) -> list[Point]:
    """Requests that need no step of the model, beside `n` streams that write."""
    n_slots = flags.np or max(1, n)
    side = (
        Group(n, bodies(flags, N_SIDE_BODIES, flags.prompt_tokens, flags.predict), flags.path) if n else None
    )
    texts = prompts.texts(prompts.N_TEXTS, flags.prompt_tokens, flags.seed, coined=flags.coined)
    ids = [prompts.ids(i, flags.prompt_tokens, flags.seed, flags.ids) for i in range(prompts.N_TEXTS)]
    sent: list[tuple[str, list[Any]]] = [
        ("/health", []),
        ("/tokenize", [{"content": text} for text in texts]),
        ("/detokenize", [{"tokens": some} for some in ids]),
    ]
    return [
        Point(
            name=f"{path}, {n} streams beside it" if n else path,
            n_streams=n,
            n_slots=n_slots,
            n_ctx_slot=context_of(flags, flags.prompt_tokens + flags.predict),
            warm_up=warm_up(flags, max(1, n), flags.prompt_tokens),
            main=Group(flags.connections, data, path),
            side=side,
            is_requests=True,
        )
        for path, data in sent
    ]


def points(flags: argparse.Namespace) -> list[Point]:
    if flags.scenario == "requests":
        return [point for n in flags.streams for point in request_points(flags, n)]
    make = {"gap": gap_point, "prefix": prefix_point}.get(flags.scenario, stream_point)
    return [make(flags, n) for n in flags.streams]
