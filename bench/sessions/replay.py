"""Replays the requests of a session against a server, one after the other, and counts the prompt tokens it computes.

New are the tokens after the longest beginning that a prompt has in common with an earlier prompt and its answer. They
are counted with llamad's prompts, taken from the slot that has just computed them. One token is always computed.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.client import Address
from bench.errors import BenchError
from bench.sessions.dialects import CHAT, MESSAGES, RESPONSES
from bench.sessions.scripted_model import Recorded

REQUEST_SECONDS = 600.0
# What the servers generate is not what the scripted model said, so it is short.
LIMITS = {MESSAGES: {"max_tokens": 1}, RESPONSES: {"max_output_tokens": 1}, CHAT: {"max_tokens": 1}}
# Fields that keep a request from being answered with one token, or which not every server knows.
_LEFT_OUT = ("stream_options", "max_completion_tokens", "thinking")

Ids = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True, slots=True)
class Turn:
    """What a server did for a request. `n_computed` is -1 if it refused the request, for `reason`."""

    n_prompt: int
    n_computed: int
    reason: str = ""


class Replayed:
    """A connection to a server on which a session is replayed."""

    def __init__(self, address: Address) -> None:
        self._connection = http.client.HTTPConnection(*address, timeout=REQUEST_SECONDS)

    def turn(self, recorded: Recorded) -> Turn:
        body = {key: value for key, value in recorded.body.items() if key not in _LEFT_OUT}
        status, answer = self._ask(recorded.path, {**body, **LIMITS[recorded.path], "stream": False})
        if status != http.client.OK:
            return Turn(0, -1, str(answer.get("error", {}).get("message", ""))[:200])
        usage = answer["usage"]
        if recorded.path == MESSAGES:
            n_cached = usage["cache_read_input_tokens"]
            return Turn(usage["input_tokens"] + n_cached, usage["input_tokens"])
        if recorded.path == RESPONSES:
            n_prompt, n_cached = usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]
        else:
            n_prompt = usage["prompt_tokens"]
            n_cached = usage["prompt_tokens_details"]["cached_tokens"]
        return Turn(n_prompt, n_prompt - n_cached)

    def slot_tokens(self) -> list[int]:
        """Return the tokens of slot 0 of a llamad with --slots."""
        status, answer = self._ask("/slots/0?action=tokens", {})
        if status != http.client.OK:
            raise BenchError(f"llamad does not show its slot: {answer}")
        tokens: list[int] = answer["tokens"]
        return tokens

    def close(self) -> None:
        self._connection.close()

    def _ask(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json", "anthropic-version": "2023-06-01"}
        self._connection.request("POST", path, json.dumps(body), headers)
        response = self._connection.getresponse()
        return response.status, json.loads(response.read())


def new_tokens(replayed: Replayed, session: Sequence[Recorded]) -> list[int]:
    """Replay a session against a llamad with one slot; return how many tokens of each prompt are new."""
    known: list[Ids] = []
    counts = []
    for recorded in session:
        turn = replayed.turn(recorded)
        if turn.n_computed < 0:
            raise BenchError(f"llamad refuses a request: {turn.reason}")
        held = np.array(replayed.slot_tokens(), np.int32)
        prompt = held[: turn.n_prompt]
        n_known = max((_n_common(prompt, one) for one in known), default=0)
        counts.append(len(prompt) - min(n_known, len(prompt) - 1))
        known.append(held)
    return counts


def _n_common(a: Ids, b: Ids) -> int:
    """Return the length of the common beginning."""
    n = min(len(a), len(b))
    differing = np.flatnonzero(a[:n] != b[:n])
    return int(differing[0]) if len(differing) else n
