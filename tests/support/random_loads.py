"""Loads of random requests on a server, by several clients at once: whether each has the text that it has alone."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from typing import Any

from support.http_client import Client
from support.live_daemon import Live
from support.random_asks import MARKER, Ask, Asks, Traits

N_CLIENTS = 8
SECONDS_MAX = 120
# Logits depend on the shapes in which they are computed: where GELU is looked up in a table of 16 bits, and still more
# with flash attention, which rounds keys and values to 16 bits.
TIES = {"off": 1e-2, "on": 3e-2}
TIES_PART = 10  # of a load's asks no more than one in so many may have a tie
# Of actions: done; no such file or session.
STATUSES = {200, 404}
# A state that has no room beside those of running tasks, or cannot be saved.
REFUSALS = {503: b"has no room for", 501: b"holds images or sound"}
COUNTED = ("decode_failures_total", "decodes_refused_total", "suspensions_total")


def body_for(client: Client, ask: Ask, **more: Any) -> dict[str, Any]:
    """Every server has a marker of its own for images."""
    body = {**ask.body, **more}
    if isinstance(body["prompt"], dict):
        marker = client.get("/props").json["media_marker"]
        text = body["prompt"]["prompt_string"].replace(MARKER, marker)
        body["prompt"] = {**body["prompt"], "prompt_string": text}
    return body


def tokens_in(answer: Any) -> list[list[int]]:
    """Of each completion."""
    return [one["tokens"] for one in (answer if isinstance(answer, list) else [answer])]


def _metrics(server: Live, prefix: str) -> dict[str, int]:
    lines = server.client.get("/metrics").body.decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if line.startswith(prefix))
    return {name.removeprefix(prefix): int(float(value)) for name, value in values.items()}


def counts(server: Live) -> dict[str, int]:
    values = _metrics(server, "llamad:")
    return {name: values[name] for name in COUNTED}


def n_drafted(server: Live) -> int:
    """Returns how many drafted tokens the server has verified."""
    return _metrics(server, "llamacpp:spec_decode_num_")["draft_tokens_total"]


class Alone:
    """A server with one slot that keeps nothing, so that each request is computed from its first token on."""

    FLAGS = ("-np", "1", "--cache-ram", "0", "--ctx-checkpoints", "0")

    def __init__(self, client: Client, flash: str) -> None:
        self.client = client
        self._tie = TIES[flash]

    def _answer(self, ask: Ask, **more: Any) -> Any:
        body = body_for(self.client, ask, stream=False, cache_prompt=False, **more)
        answer = self.client.post(ask.path, body)
        assert answer.status == 200, (answer.body, ask)
        return answer.json

    def tokens(self, ask: Ask) -> list[list[int]]:
        return tokens_in(self._answer(ask))

    def is_tie(self, ask: Ask, i: int, at: int, token: int) -> bool:
        """Whether rounding decides between this token and the one that completion i has at this place."""
        answer = self._answer(ask, n_probs=5)
        answer = answer[i] if isinstance(answer, list) else answer
        top = answer["completion_probabilities"][at]["top_logprobs"]
        return token in {one["id"] for one in top if top[0]["logprob"] - one["logprob"] < self._tie}


class Load:
    """Asks that are made from a seed, and what became of them."""

    def __init__(self, seed: int, traits: Traits, alone: Alone, n_asks: int) -> None:
        self.seed = seed
        self.failures: list[str] = []
        self.seen: Counter[str] = Counter()
        self._alone = alone
        self._random = random.Random(seed)
        self._asks: list[tuple[Ask, list[list[int]]]] = []
        maker = Asks(seed, traits)
        for _ in range(n_asks):
            ask = maker.next()
            tokens = alone.tokens(ask) if ask.is_compared else []
            maker.answered(ask, tokens)
            self._asks.append((ask, tokens))

    def run(self, server: Live) -> None:
        """All asks, by several clients. Once more: in another order."""
        asks, lock = iter([*self._asks]), threading.Lock()
        self._random.shuffle(self._asks)

        def take_turns() -> None:
            while True:
                with lock:
                    ask, alone = next(asks, (None, []))
                if ask is None:
                    return
                try:
                    problem = self._do(server.client, ask, alone)
                except Exception as error:
                    problem = repr(error)
                if problem:
                    self.failures.append(f"{problem}: {ask}")

        clients = [threading.Thread(target=take_turns, daemon=True) for _ in range(N_CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join(SECONDS_MAX)
            if client.is_alive():
                self.failures.append("a request hangs")
                return

    def check(self, server: Live) -> None:
        """After a run: nothing has failed, the slots are idle, and the engine has always known what has room."""
        if not self.failures:
            server.wait_idle()
        lines = [line for line in server.lines if " access: " not in line]
        assert not self.failures, "\n".join([f"seed {self.seed}", *self.failures, *lines[-30:]])
        now = counts(server)
        assert now["decode_failures_total"] == now["decodes_refused_total"] == 0, (self.seed, now)
        assert TIES_PART * self.seen["ties"] <= sum(ask.is_compared for ask, _ in self._asks), self.seed
        self.seen["ties"] = 0

    # --- one ask --------------------------------------------------------------------------------------------------

    def _do(self, client: Client, ask: Ask, alone: list[list[int]]) -> str:
        """Returns what is wrong with the answer; the empty string: nothing."""
        self.seen[ask.kind] += 1
        if ask.n_reads is not None:
            return self._leave(client, ask.body, ask.n_reads)
        if not ask.is_compared:
            return self._act(client, ask)
        body = body_for(client, ask)
        if body["stream"]:
            events = [*client.events(ask.path, body)]
            if "error" in events[-1]:
                return str(events[-1])
            return self._compare(ask, [[*itertools.chain(*(event["tokens"] for event in events))]], alone)
        answer = client.post(ask.path, body)
        if answer.status != 200:
            return f"{answer.status} {answer.body!r}"
        return self._compare(ask, tokens_in(answer.json), alone)

    def _leave(self, client: Client, body: dict[str, Any], n_reads: int) -> str:
        with client.open_stream(body) as connection:
            data = b"".join(connection.recv(1 << 16) for _ in range(n_reads))
        return "" if not data or data.startswith(b"HTTP/1.1 200 ") else repr(data)

    def _act(self, client: Client, ask: Ask) -> str:
        answer = client.post(ask.path, ask.body)
        self.seen[f"action {answer.status}"] += 1
        reason = REFUSALS.get(answer.status)
        if answer.status in STATUSES or (reason is not None and reason in answer.body):
            return ""
        return f"{answer.status} {answer.body!r}"

    def _compare(self, ask: Ask, tokens: list[list[int]], alone: list[list[int]]) -> str:
        if tokens == alone:
            return ""
        if [*map(len, tokens)] != [*map(len, alone)]:
            return f"lengths {[*map(len, tokens)]}, alone {[*map(len, alone)]}"
        for i, (one, other) in enumerate(zip(tokens, alone, strict=True)):
            differing = (at for at in range(len(one)) if one[at] != other[at])
            at = next(differing, None)
            if at is not None and not self._alone.is_tie(ask, i, at, one[at]):
                return f"completion {i} differs from token {at} on: {one}, alone {other}"
        self.seen["ties"] += 1
        return ""
