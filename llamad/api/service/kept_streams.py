"""Owns resumable streams: what a generation wrote, kept so that its client may come back and read on.

Runs on the event loop. A stream's first client and those that come back read it in the same way: each at its own pace,
and none holds back the generation. Bounded: the oldest bytes of a stream go first, and ended streams before running
ones. Must not know what the bytes mean.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from llamad.api.request.errors import bad
from llamad.http import sse
from llamad.http.exchange import Exchange
from llamad.http.request import Request, Response

# llama-server's.
STREAM_BYTES_MAX = 4 << 20
KEPT_SECONDS = 300.0

BYTES_MAX = 64 << 20
ENDED_MAX = 1024
ID_MAX = 512  # characters
PIECE_BYTES = 1 << 20  # that a reader is sent in one turn of the event loop


def conversation_of(request: Request) -> str:
    """The conversation whose stream shall be kept; empty: none."""
    id = request.headers.get("x-conversation-id", "").encode("latin-1").decode("utf-8", "replace")
    if len(id) > ID_MAX:
        raise bad(f"X-Conversation-Id may have at most {ID_MAX} characters, not {len(id)}")
    return id


class Reader:
    """A client of a stream."""

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

    def _leave(self) -> None:
        self._stream.readers.discard(self)

    def begin(self, data: bytes = b"") -> None:
        self._exchange.begin(200, sse.CONTENT_TYPE, self._headers, data)

    def send(self) -> None:
        """All that it has not had, unless it reads too slowly: then it goes on when it is ready for more."""
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
        """What it would read next is gone."""
        self._leave()
        self._exchange.fail(Response(500, reason="the client was too slow: a part of its stream is gone"))


class KeptStream:
    """What one generation has written so far, and its readers. `stop` ends the generation."""

    __slots__ = (
        "_data",
        "_store",
        "completed_at",
        "id",
        "is_ended",
        "key",
        "n_dropped",
        "readers",
        "started_at",
        "stop",
        "t_ended",
    )

    def __init__(self, store: KeptStreams, key: str, id: str, stop: Callable[[], None]) -> None:
        self._store = store
        self.key = key
        self.id = id
        self.stop = stop
        self.started_at = int(time.time())
        self.completed_at = 0
        self.t_ended = 0.0
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
        self._store.n_bytes += len(data)
        for reader in list(self.readers):
            reader.send()
        self._store.bound(self)

    def drop_oldest(self, n: int) -> None:
        self.n_dropped += n
        del self._data[:n]

    def attach(self, exchange: Exchange, offset: int = 0, headers: Iterable[tuple[str, str]] = ()) -> Reader:
        """A new reader. Its response begins with the first bytes."""
        reader = Reader(self, exchange, offset, headers)
        self.readers.add(reader)
        return reader

    def end(self) -> None:
        """The generation is over: readers end when they have had everything."""
        if not self.is_ended:
            self._set_ended()
            self._store.ended(self)

    def _set_ended(self) -> None:
        self.is_ended = True
        self.completed_at = int(time.time())
        self.t_ended = time.monotonic()
        self.stop = _nothing
        for reader in list(self.readers):
            reader.send()

    def discard(self) -> None:
        """Nobody shall read it again."""
        self._store.remove(self)

    def close(self) -> None:
        """Let go of everything, and stop the generation if it still runs. Only readers that have had everything see a
        proper end."""
        stop = self.stop
        if not self.is_ended:
            self._set_ended()
        self.drop_oldest(len(self._data))
        for reader in list(self.readers):
            reader.cut_off()
        stop()


def _nothing() -> None:
    pass


class KeptStreams:
    """The streams by key and conversation: a conversation has at most one."""

    def __init__(self, stream_bytes_max: int = STREAM_BYTES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._stream_bytes_max = stream_bytes_max
        self._bytes_max = bytes_max
        self._streams: dict[tuple[str, str], KeptStream] = {}
        self._ended: dict[KeptStream, None] = {}  # the oldest first
        self.n_bytes = 0

    def open(self, key: str, id: str, stop: Callable[[], None]) -> KeptStream:
        """A new stream in the place of the conversation's last one, whose generation is stopped."""
        self.drop(key, id)
        stream = self._streams[key, id] = KeptStream(self, key, id, stop)
        return stream

    def find(self, key: str, id: str) -> KeptStream | None:
        return self._streams.get((key, id))

    def of_key(self, key: str) -> list[KeptStream]:
        return [stream for stream in self._streams.values() if stream.key == key]

    def drop(self, key: str, id: str) -> None:
        stream = self._streams.get((key, id))
        if stream is not None:
            self.remove(stream)

    def remove(self, stream: KeptStream) -> None:
        if self._streams.get((stream.key, stream.id)) is stream:
            del self._streams[stream.key, stream.id]
            self._ended.pop(stream, None)
            self.n_bytes -= stream.n_bytes
            stream.close()

    def tick(self, now: float) -> None:
        """Drop what ended too long ago."""
        while self._ended:
            oldest = next(iter(self._ended))
            if now - oldest.t_ended < KEPT_SECONDS:
                break
            self.remove(oldest)

    # Called by the streams.

    def bound(self, stream: KeptStream) -> None:
        """After it grew. If all of them are too large, ended ones go, then its own oldest bytes."""
        self._cut(stream, stream.n_bytes - self._stream_bytes_max)
        while self.n_bytes > self._bytes_max and self._ended:
            self.remove(next(iter(self._ended)))
        self._cut(stream, min(stream.n_bytes, self.n_bytes - self._bytes_max))

    def _cut(self, stream: KeptStream, n: int) -> None:
        if n > 0:
            stream.drop_oldest(n)
            self.n_bytes -= n

    def ended(self, stream: KeptStream) -> None:
        self._ended[stream] = None
        while len(self._ended) > ENDED_MAX:
            self.remove(next(iter(self._ended)))
