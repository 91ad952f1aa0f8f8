"""Owns the bytes: requests to send, and what came back turned into events with their times.

Pure functions, used before and after a run. Nothing here runs while times are taken.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from bench.errors import BenchError

# What a stream ends with: the end of a chunk, then an empty one. Neither a head nor JSON can hold these bytes.
LAST_CHUNK = b"\r\n0\r\n\r\n"

Reads = list[tuple[int, bytes]]


def request(method: str, path: str, host: str, body: Any = None) -> bytes:
    """One request, ready to be written."""
    data = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n"
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    return head.encode() + b"\r\n" + data


@dataclass(slots=True)
class Exchange:
    """One request as it went: when it was sent, and every read of its answer with its time, in nanoseconds."""

    t_sent: int
    reads: Reads = field(default_factory=list)


@dataclass(slots=True)
class Stream:
    """A streamed completion: the times of the events that carried tokens, and what they said."""

    t_sent: int
    t_end: int
    times: list[int]
    content: str
    n_tokens: int
    n_prompt: int

    @property
    def first_ms(self) -> float:
        return (self.times[0] - self.t_sent) / 1e6

    @property
    def gaps_ms(self) -> list[float]:
        return [(after - before) / 1e6 for before, after in zip(self.times, self.times[1:], strict=False)]


def answer_length(data: bytes | bytearray) -> int:
    """Bytes of the whole answer that `data` begins with, or 0 while its head is not complete."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return 0
    head = data[:end].lower()
    at = head.find(b"\r\ncontent-length:")
    if at < 0:
        raise BenchError("an answer has no Content-Length: this endpoint cannot be measured")
    line_end = head.find(b"\r\n", at + 2)
    return end + 4 + int(head[at + 17 : line_end if line_end >= 0 else end])


class _Dechunker:
    """Takes the chunk sizes out of a body that comes in pieces."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._n_left = 0  # of the chunk, its line end included
        self._ended = False

    def feed(self, data: bytes) -> bytes:
        self._buffer += data
        out = bytearray()
        while not self._ended:
            if self._n_left:
                take = self._buffer[: self._n_left]
                self._n_left -= len(take)
                del self._buffer[: len(take)]
                out += take[: max(0, len(take) - max(0, 2 - self._n_left))]
                if self._n_left:
                    return bytes(out)
            end = self._buffer.find(b"\r\n")
            if end < 0:
                return bytes(out)
            size = int(self._buffer[:end].split(b";")[0], 16)
            del self._buffer[: end + 2]
            self._ended = size == 0
            self._n_left = size + 2
        return bytes(out)


def events(reads: Reads) -> list[tuple[int, Any]]:
    """The answer's events, each with the time of the read that completed it."""
    found: list[tuple[int, Any]] = []
    dechunker = _Dechunker()
    head, body = b"", b""
    in_body = False
    for t, data in reads:
        if not in_body:
            head += data
            end = head.find(b"\r\n\r\n")
            if end < 0:
                continue
            in_body = True
            data = head[end + 4 :]
        body += dechunker.feed(data)
        *whole, body = body.split(b"\n\n")
        for event in whole:
            if event.startswith(b"data: ") and event != b"data: [DONE]":
                found.append((t, json.loads(event[6:])))
    return found


def stream(exchange: Exchange) -> Stream:
    """What a finished exchange of /completion was."""
    times: list[int] = []
    content = ""
    final: dict[str, Any] = {}
    for t, event in events(exchange.reads):
        if "error" in event:
            raise BenchError(f"a stream ended with an error: {event['error']}")
        if event.get("stop"):
            final = event
        if event.get("content") or (event.get("tokens") and not event.get("stop")):
            times.append(t)
            content += event["content"]
    if not final or not times:
        raise BenchError("a stream ended without tokens or without its last event")
    return Stream(
        t_sent=exchange.t_sent,
        t_end=exchange.reads[-1][0],
        times=times,
        content=content,
        n_tokens=int(final["tokens_predicted"]),
        n_prompt=int(final["tokens_evaluated"]),
    )
