"""What is kept of streams, for how long, and who reads it at which pace."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from llamad.api.service import kept_streams
from llamad.api.service.kept_streams import KEPT_SECONDS, KeptStream, KeptStreams


class Client:
    """An exchange whose client may be slow."""

    def __init__(self) -> None:
        self.closed = self.begun = self.paused = self.is_cut = False
        self.data = b""
        self.on_abort: Any = None
        self.on_resume: Any = None

    def begin(self, status: int, content_type: str, headers: Any, data: bytes) -> None:
        self.begun = True
        self.data += data

    def write(self, data: bytes) -> None:
        assert self.begun
        assert not self.closed
        self.data += data

    def end(self) -> None:
        self.closed = True

    def fail(self, response: Any) -> None:
        self.closed = self.is_cut = True


class Writer:
    """A generation that notes its end."""

    engine: Any = None

    def __init__(self, id: str, stopped: list[str]) -> None:
        self._id = id
        self._stopped = stopped

    def abort(self) -> None:
        self._stopped.append(self._id)

    def give_way(self, reason: str) -> None:
        pytest.fail("nobody waits for a slot here")

    def n_queued(self, t_before: float) -> int:
        return 0


def opened(store: KeptStreams, id: str, stopped: list[str] | None = None, key: str = "") -> KeptStream:
    return store.open(key, id, Writer(id, stopped if stopped is not None else []))


def attached(stream: KeptStream, offset: int = 0, *, slow: bool = False) -> Client:
    client: Any = Client()
    reader = stream.attach(client, offset)
    client.paused = slow
    reader.begin()
    reader.send()
    found: Client = client
    return found


def test_readers_come_and_go() -> None:
    store = KeptStreams()
    stream = opened(store, "a")
    first = attached(stream)
    stream.append(b"one ")
    late, behind, ahead = attached(stream), attached(stream, 2), attached(stream, 6)
    first.closed = True
    first.on_abort()
    stream.append(b"two")
    stream.end()
    stream.append(b"never")
    assert (first.data, late.data, behind.data, ahead.data) == (b"one ", b"one two", b"e two", b"o")
    assert late.closed
    assert not late.is_cut
    assert attached(stream, 4).data == b"two"
    assert (stream.n_total, store.n_bytes, stream.readers) == (7, 7, set())


def test_a_slow_reader_holds_nobody() -> None:
    store = KeptStreams(stream_bytes_max=8)
    stream = opened(store, "a")
    slow, quick = attached(stream, slow=True), attached(stream)
    for _ in range(4):
        stream.append(b"abcd")
    assert (quick.data, slow.data) == (b"abcd" * 4, b"")
    assert (stream.n_dropped, stream.n_bytes, store.n_bytes) == (8, 8, 8)
    slow.paused = False
    slow.on_resume()
    assert slow.is_cut


def test_a_reader_that_catches_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_streams, "PIECE_BYTES", 3)

    async def read() -> Client:
        stream = opened(KeptStreams(), "a")
        stream.append(b"abcdefgh")
        stream.end()
        client = attached(stream)
        assert client.data == b"abc"  # the others have their turns
        while not client.closed:
            await asyncio.sleep(0)
        return client

    assert asyncio.run(read()).data == b"abcdefgh"


def test_all_of_them_are_bounded() -> None:
    stopped: list[str] = []
    store = KeptStreams(stream_bytes_max=60, bytes_max=100)
    streams = [opened(store, id, stopped) for id in "abc"]
    for stream in streams:
        stream.append(b"x" * 40)
        stream.end() if stream.id == "a" else None
    assert store.n_bytes == 80  # the ended one went first
    assert store.find("", "a") is None
    streams[1].append(b"x" * 20)
    streams[2].append(b"x" * 20)
    assert (store.n_bytes, streams[1].n_dropped, streams[2].n_dropped) == (100, 0, 20)
    assert stopped == []


def test_ended_ones_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_streams, "ENDED_MAX", 2)
    store = KeptStreams()
    for id in "abc":
        opened(store, id).append(b"x")
        stream = store.find("", id)
        assert stream is not None
        stream.end()
    assert [stream.id for stream in store.of_key("")] == ["b", "c"]
    store.tick(stream.t_ended + KEPT_SECONDS - 1)
    assert store.n_bytes == 2
    running = opened(store, "d")
    store.tick(stream.t_ended + KEPT_SECONDS + 1)
    assert store.of_key("") == [running]
    assert store.n_bytes == 0


def test_one_stream_for_a_conversation() -> None:
    stopped: list[str] = []
    store = KeptStreams()
    stream = opened(store, "a", stopped)
    stream.append(b"abc")
    at_end, behind = attached(stream), attached(stream, slow=True)
    again = opened(store, "a", stopped)
    assert stopped == ["a"]
    assert (at_end.closed, at_end.is_cut, behind.is_cut) == (True, False, True)
    assert (store.find("", "a"), store.find("other", "a"), store.n_bytes) == (again, None, 0)
    again.end()
    store.drop("", "a")
    store.drop("", "a")
    assert stopped == ["a"]


def test_a_key_with_many_streams_loses_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_streams, "ENDED_MAX", 4)
    store = KeptStreams()
    opened(store, "first", key="few").end()
    for i in range(20):
        opened(store, str(i), key="many").end()
    assert [stream.id for stream in store.of_key("few")] == ["first"]
    assert [stream.id for stream in store.of_key("many")] == ["17", "18", "19"]


def test_a_key_with_many_bytes_loses_its_own() -> None:
    store = KeptStreams(stream_bytes_max=60, bytes_max=100)
    few, ended = opened(store, "few", key="few"), opened(store, "ended", key="few")
    ended.append(b"x" * 20)
    ended.end()
    many = [opened(store, str(i), key="many") for i in range(3)]
    for stream in many:
        stream.append(b"x" * 60)
    assert (store.n_bytes, ended.n_bytes, sum(stream.n_bytes for stream in many)) == (100, 20, 80)
    few.append(b"x" * 20)
    assert (store.n_bytes, few.n_bytes, ended.n_bytes) == (100, 20, 20)
    assert sum(stream.n_bytes for stream in many) == 60
    for stream in (few, ended, *many):
        store.remove(stream)
    assert (store.n_bytes, store._keys) == (0, {})
