"""Resumable streams: the output of a generation is kept, so that its client may come back and read on.

Runs on the event loop. A stream's first client and those that come back read it in the same way: each at its own pace,
and none holds back the generation. Memory is bounded: the key that has most loses ended streams first, then the oldest
bytes of running ones. Must not know what the bytes mean.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import msgspec

from llamad.api.request.errors import bad
from llamad.client.engine_client import EngineClient
from llamad.http import sse
from llamad.http.exchange import Exchange
from llamad.http.request import Request, Response

# The same limit as in llama-server.
STREAM_BYTES_MAX = 4 << 20
KEPT_SECONDS = 300.0

BYTES_MAX = 64 << 20
ENDED_MAX = 1024
ID_MAX = 512  # in characters
PIECE_BYTES = 1 << 20  # a reader is sent at most this much in one turn of the event loop


def conversation_of(request: Request) -> str:
    """Return the conversation whose stream shall be kept; it is empty if there is none. Raises a 400 for an id that is
    too long."""
    id = request.headers.get("x-conversation-id", "").encode("latin-1").decode("utf-8", "replace")
    if len(id) > ID_MAX:
        raise bad(f"X-Conversation-Id may have at most {ID_MAX} characters, not {len(id)}")
    return id


class Generation(Protocol):
    """The generation that writes a stream."""

    engine: EngineClient

    def abort(self) -> None:
        """End the generation. Nobody will read the stream."""

    def give_way(self, reason: str) -> None:
        """End the generation, and write an error at the end of its stream."""

    def n_queued(self, t_before: float) -> int:
        """Return how many of its tasks have waited for a slot since `t_before`."""


class Reader:
    """A client that reads a stream."""

    __slots__ = ("_exchange", "_headers", "_offset", "_stream")

    def __init__(
        self, stream: KeptStream, exchange: Exchange, offset: int, headers: Iterable[tuple[str, str]]
    ) -> None:
        self._stream = stream
        self._exchange = exchange
        self._offset = offset
        self._headers = headers
        exchange.on_abort = self._leave
        exchange.on_resume = self.send

    @property
    def is_stuck(self) -> bool:
        """Whether the client does not read what was sent to it."""
        return self._exchange.begun and self._exchange.paused

    def _leave(self) -> None:
        self._stream.readers.discard(self)

    def begin(self, data: bytes = b"") -> None:
        self._exchange.begin(200, sse.CONTENT_TYPE, self._headers, data)

    def send(self) -> None:
        """Send all that the client has not received yet. If it reads too slowly, go on when it is ready for more."""
        exchange, stream = self._exchange, self._stream
        if exchange.closed or (exchange.begun and exchange.paused):
            return
        if self._offset < stream.n_dropped:
            self.cut_off()
            return
        data = stream.read(self._offset, PIECE_BYTES)
        self._offset += len(data)
        if data and not exchange.begun:
            self.begin(data)
        elif data:
            exchange.write(data)
        if self._offset < stream.n_total:
            if not exchange.closed and not exchange.paused:
                asyncio.get_running_loop().call_soon(self.send)
        elif stream.is_ended:
            self._end()

    def _end(self) -> None:
        self._leave()
        if not self._exchange.begun:
            self.begin()
        self._exchange.end()

    def cut_off(self) -> None:
        """End the response with an error, because the bytes that the client would read next are gone."""
        self._leave()
        self._exchange.fail(Response(500, reason="the client was too slow: a part of its stream is gone"))


class KeptStream:
    """The output of one generation so far, and its readers."""

    __slots__ = (
        "_data",
        "_on_end",
        "_store",
        "completed_at",
        "generation",
        "id",
        "is_ended",
        "key",
        "n_dropped",
        "readers",
        "started_at",
        "t_ended",
        "t_unread",
    )

    def __init__(
        self,
        store: KeptStreams,
        key: str,
        id: str,
        generation: Generation,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self._store = store
        self._on_end = on_end
        self.key = key
        self.id = id
        self.generation: Generation | None = generation  # None once it has ended
        self.started_at = int(time.time())
        self.completed_at = 0
        self.t_ended = 0.0
        self.t_unread: float | None = None  # when look() first saw that nobody reads it
        self.is_ended = False
        self.n_dropped = 0
        self.readers: set[Reader] = set()
        self._data = bytearray()

    @property
    def n_total(self) -> int:
        return self.n_dropped + len(self._data)

    @property
    def n_bytes(self) -> int:
        return len(self._data)

    def read(self, offset: int, n: int) -> bytes:
        at = offset - self.n_dropped
        return bytes(self._data[at : at + n])

    def append(self, data: bytes) -> None:
        if self.is_ended:
            return
        self._data += data
        for reader in list(self.readers):
            reader.send()
        self._store.grown(self, len(data))

    def drop_oldest(self, n: int) -> None:
        self.n_dropped += n
        del self._data[:n]

    def attach(self, exchange: Exchange, offset: int = 0, headers: Iterable[tuple[str, str]] = ()) -> Reader:
        """Add a reader and return it. Its response begins with the first bytes."""
        reader = Reader(self, exchange, offset, headers)
        self.readers.add(reader)
        return reader

    def end(self) -> None:
        """Note that the generation is over. Readers end once they have received everything."""
        if not self.is_ended:
            self._set_ended()
            self._store.ended(self)

    def _set_ended(self) -> None:
        self.is_ended = True
        self.completed_at = int(time.time())
        self.t_ended = time.monotonic()
        self.generation = None
        if self._on_end is not None:
            self._on_end()
        for reader in list(self.readers):
            reader.send()

    def discard(self) -> None:
        """Remove the stream, so that nobody can read it again."""
        self._store.remove(self)

    def close(self) -> None:
        """Free everything, and stop the generation if it still runs. Only readers that have received everything see a
        proper end."""
        generation = self.generation
        if not self.is_ended:
            self._set_ended()
        self.drop_oldest(len(self._data))
        for reader in list(self.readers):
            reader.cut_off()
        if generation is not None:
            generation.abort()

    def look(self, now: float) -> None:
        """Note whether anybody reads the stream."""
        if any(not reader.is_stuck for reader in self.readers):
            self.t_unread = None
        elif self.t_unread is None:
            self.t_unread = now


class _Own(msgspec.Struct):
    """The streams of one key."""

    streams: dict[str, KeptStream] = msgspec.field(default_factory=dict)  # by conversation
    ended: dict[KeptStream, None] = msgspec.field(default_factory=dict)  # ended streams, oldest first
    n_bytes: int = 0


class KeptStreams:
    """The streams by key and conversation; a conversation has at most one. Keys share the memory; if it is full, the
    key that uses most of it loses its oldest stream."""

    def __init__(self, stream_bytes_max: int = STREAM_BYTES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._stream_bytes_max = stream_bytes_max
        self._bytes_max = bytes_max
        self._keys: dict[str, _Own] = {}
        self.n_bytes = 0

    def open(
        self, key: str, id: str, generation: Generation, on_end: Callable[[], None] | None = None
    ) -> KeptStream:
        """Return a new stream. It replaces the conversation's last one, whose generation is stopped. `on_end` is called
        when the generation is over."""
        self.drop(key, id)
        stream = KeptStream(self, key, id, generation, on_end)
        self._keys.setdefault(key, _Own()).streams[id] = stream
        return stream

    def find(self, key: str, id: str) -> KeptStream | None:
        own = self._keys.get(key)
        return None if own is None else own.streams.get(id)

    def of_key(self, key: str) -> list[KeptStream]:
        own = self._keys.get(key)
        return [] if own is None else list(own.streams.values())

    def running(self) -> Iterator[KeptStream]:
        for own in self._keys.values():
            yield from (stream for stream in own.streams.values() if not stream.is_ended)

    def drop(self, key: str, id: str) -> None:
        stream = self.find(key, id)
        if stream is not None:
            self.remove(stream)

    def remove(self, stream: KeptStream) -> None:
        if self.find(stream.key, stream.id) is not stream:
            return
        own = self._keys[stream.key]
        del own.streams[stream.id]
        own.ended.pop(stream, None)
        own.n_bytes -= stream.n_bytes
        self.n_bytes -= stream.n_bytes
        if not own.streams:
            del self._keys[stream.key]
        stream.close()

    def tick(self, now: float) -> None:
        """Remove streams that ended too long ago, and note which ones are read."""
        for own in list(self._keys.values()):
            while own.ended and now - (oldest := next(iter(own.ended))).t_ended >= KEPT_SECONDS:
                self.remove(oldest)
        for stream in self.running():
            stream.look(now)

    # Called by the streams.

    def grown(self, stream: KeptStream, n: int) -> None:
        """Make room for the `n` bytes that a stream has grown by. The key with the most bytes loses ended streams
        first, then bytes of this stream if it is the key's own, else of the key's largest stream."""
        if self.find(stream.key, stream.id) is not stream:
            return
        self._keys[stream.key].n_bytes += n
        self.n_bytes += n
        self._cut(stream, stream.n_bytes - self._stream_bytes_max)
        while self.n_bytes > self._bytes_max:
            own = max(self._keys.values(), key=lambda one: one.n_bytes)
            if own.ended:
                self.remove(next(iter(own.ended)))
                continue
            is_own = stream.n_bytes > 0 and own is self._keys[stream.key]
            largest = stream if is_own else max(own.streams.values(), key=lambda one: one.n_bytes)
            self._cut(largest, min(largest.n_bytes, self.n_bytes - self._bytes_max))

    def _cut(self, stream: KeptStream, n: int) -> None:
        if n > 0:
            stream.drop_oldest(n)
            self._keys[stream.key].n_bytes -= n
            self.n_bytes -= n

    def ended(self, stream: KeptStream) -> None:
        if self.find(stream.key, stream.id) is not stream:
            return
        self._keys[stream.key].ended[stream] = None
        while sum(len(own.ended) for own in self._keys.values()) > ENDED_MAX:
            own = max(self._keys.values(), key=lambda one: len(one.ended))
            self.remove(next(iter(own.ended)))
