"""Clients of a router that work at the same time, and a record of what became of each of their requests."""

from __future__ import annotations

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from support.http_client import Answer, Client
from support.many_models.calls import CHAT, chat
from support.many_models.streams import Stream

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Return the weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Rome", "Oslo"]}},
            "required": ["city"],
        },
    },
}


@dataclass
class Record:
    """One request. `error` is empty if its answer was whole."""

    model: str
    kind: str
    t_start: float
    t_end: float
    error: str

    @property
    def seconds(self) -> float:
        return self.t_end - self.t_start


class Day:
    """Clients that go on until their model is stopped."""

    def __init__(self, client: Client) -> None:
        self.records: list[Record] = []
        self._client = client
        self._clients: list[tuple[str, threading.Thread, threading.Event]] = []

    def work(self, model: str, kind: str, pauses: float) -> None:
        """Start a client that sends requests of a kind, with pauses of up to so many seconds between them."""
        call = {"chat": self._chat, "stream": self._stream, "tools": self._tools, "vectors": self._vectors}[
            kind
        ]
        randoms = random.Random(f"{model} {kind} {len(self._clients)}")
        is_over = threading.Event()
        thread = threading.Thread(
            target=self._run, args=(model, kind, call, pauses, randoms, is_over), daemon=True
        )
        self._clients.append((model, thread, is_over))
        thread.start()

    def stop(self, *models: str) -> None:
        """Stop the clients of some models, and wait until their requests have ended."""
        stopped = [(thread, is_over) for model, thread, is_over in self._clients if model in models]
        for _, is_over in stopped:
            is_over.set()
        for thread, _ in stopped:
            thread.join(120)
            assert not thread.is_alive(), "a request does not end"

    def errors(self) -> list[Record]:
        return [one for one in self.records if one.error]

    def counts(self) -> Counter[tuple[str, str]]:
        """How many requests succeeded, by model and kind."""
        return Counter((one.model, one.kind) for one in list(self.records) if not one.error)

    def _run(
        self,
        model: str,
        kind: str,
        call: Callable[[str], str],
        pauses: float,
        randoms: random.Random,
        is_over: threading.Event,
    ) -> None:
        while not is_over.is_set():
            t_start = time.monotonic()
            try:
                error = call(model)
            except (AssertionError, OSError, ValueError, KeyError) as exception:
                error = f"{type(exception).__name__}: {exception}"
            self.records.append(Record(model, kind, t_start, time.monotonic(), error))
            is_over.wait(randoms.uniform(0.0, pauses))

    def _chat(self, model: str) -> str:
        answer = self._client.post(CHAT, chat(model, 6))
        return _check(answer, lambda body: body["usage"]["completion_tokens"] == 6)

    def _stream(self, model: str) -> str:
        result = Stream(self._client, chat(model, 12)).finish()
        return "" if result == ("length", 12) else f"it ended with {result}"

    def _tools(self, model: str) -> str:
        more = {"tools": [TOOL], "tool_choice": "required", "ignore_eos": False}
        answer = self._client.post(CHAT, chat(model, 48, **more))
        return _check(answer, lambda body: body["choices"][0]["finish_reason"] in ("tool_calls", "length"))

    def _vectors(self, model: str) -> str:
        answer = self._client.post("/v1/embeddings", {"model": model, "input": ["some text", "another"]})
        return _check(answer, lambda body: len(body["data"]) == 2)


def _check(answer: Answer, is_whole: Callable[[Any], bool]) -> str:
    if answer.status != 200:
        return f"{answer.status} {answer.body[:300]!r}"
    return "" if is_whole(answer.json) else f"not whole: {answer.body[:300]!r}"


def metric(client: Client, name: str, **labels: str) -> float:
    """The sum of a metric over all of its lines that have these labels."""
    total = 0.0
    for line in client.get("/metrics").body.decode().splitlines():
        match = re.fullmatch(re.escape(name) + r"(\{.*\})? (\S+)", line)
        if match and all(f'{key}="{value}"' in (match[1] or "") for key, value in labels.items()):
            total += float(match[2])
    return total
