"""Owns the load generator: one event loop, one connection a lane, each lane with at most one request under way.

Runs in the bench's own process. While times are taken it only stamps and keeps what it reads; wire.py looks at it
afterwards, so that the generator never costs more than the programs it measures.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import uvloop

from bench import wire
from bench.errors import BenchError

Address = tuple[str, int]
RESENDS_MAX = 3

clock = time.perf_counter_ns


class _Link(asyncio.Protocol):
    """One connection of a lane. What a connection says after the lane gave it up is not heard."""

    def __init__(self, lane: _Lane) -> None:
        self.lane: _Lane | None = lane
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclasses of it

    def data_received(self, data: bytes) -> None:
        if self.lane is not None:
            self.lane.on_data(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self.lane is not None:
            self.lane.on_lost(error)

    def give_up(self) -> None:
        self.lane = None
        if self.transport is not None:
            self.transport.close()


class _Lane(ABC):
    """A connection that is opened again when the server closes it, and what is sent on it."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.n_connects = 0
        self.t_sent = 0
        self._link: _Link | None = None
        self._pending = b""  # sent and not yet answered
        self._n_resends = 0
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        _, self._link = await asyncio.get_running_loop().create_connection(lambda: _Link(self), *self.address)
        self.n_connects += 1

    def send(self, data: bytes) -> None:
        """The clock of a request starts here, also when its connection has to be opened first."""
        self._pending = data
        self.t_sent = clock()
        if self._link is None or self._link.transport is None:
            self._task = asyncio.ensure_future(self._reopen())
        else:
            self._link.transport.write(data)

    def answered(self, head: bytes | bytearray) -> None:
        """An answer is complete. A server may end the connection with it, and says so in the head."""
        self._pending = b""
        self._n_resends = 0
        if b"connection: close" in head.lower():
            self.close()

    def close(self) -> None:
        if self._link is not None:
            self._link.give_up()
            self._link = None

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)
        self.close()

    @abstractmethod
    def has_bytes(self) -> bool:
        """Whether a part of the pending answer has come."""

    @abstractmethod
    def on_data(self, data: bytes) -> None:
        """The next bytes of the answer."""

    def on_lost(self, error: Exception | None) -> None:
        self._link = None
        if self.done.done() or not self._pending:
            return
        if self.has_bytes() or self._n_resends == RESENDS_MAX:
            self.fail(
                BenchError("the server closed a connection before its answer was complete: see its log")
            )
            return
        self._n_resends += 1
        self._task = asyncio.ensure_future(self._reopen())

    async def _reopen(self) -> None:
        try:
            await self.open()
        except OSError as error:
            self.fail(BenchError(f"cannot connect to {self.address[0]}:{self.address[1]}: {error}"))
            return
        if self._link is not None and self._link.transport is not None:
            self._link.transport.write(self._pending)


class _StreamLane(_Lane):
    """Sends its requests one after the other and keeps their answers."""

    def __init__(self, address: Address, requests: Sequence[bytes]) -> None:
        super().__init__(address)
        self.exchanges: list[wire.Exchange] = []
        self._requests = iter(requests)
        self._reads: wire.Reads = []
        self._tail = b""

    def start(self) -> None:
        data = next(self._requests, None)
        if data is None:
            self.done.set_result(None)
            self.close()
            return
        self._reads = []
        self._tail = b""
        self.send(data)
        self.exchanges.append(wire.Exchange(self.t_sent, self._reads))

    def has_bytes(self) -> bool:
        return bool(self._reads)

    def on_data(self, data: bytes) -> None:
        reads = self._reads
        reads.append((clock(), data))
        if len(reads) == 1 and not data.startswith(b"HTTP/1.1 200"):
            self.fail(BenchError(f"a request was refused: {data.decode('utf-8', 'replace')}"))
            return
        tail = self._tail + data[-len(wire.LAST_CHUNK) :]
        if tail.endswith(wire.LAST_CHUNK):
            self.answered(reads[0][1])
            self.start()
        else:
            self._tail = tail[1 - len(wire.LAST_CHUNK) :]


class _RequestLane(_Lane):
    """Sends requests in turn until the time is over."""

    def __init__(self, address: Address, data: Iterator[bytes], t_end: int) -> None:
        super().__init__(address)
        self.latencies: list[int] = []
        self._data = data
        self._t_end = t_end
        self._buffer = bytearray()
        self._n_wanted = 0

    def start(self) -> None:
        self._buffer.clear()
        self._n_wanted = 0
        self.send(next(self._data))

    def has_bytes(self) -> bool:
        return bool(self._buffer)

    def on_data(self, data: bytes) -> None:
        now = clock()
        buffer = self._buffer
        buffer += data
        try:
            n = self._n_wanted = self._n_wanted or wire.answer_length(buffer)
        except (BenchError, ValueError) as error:
            self.fail(error)
            return
        if not n or len(buffer) < n:
            return
        if not buffer.startswith(b"HTTP/1.1 200") or len(buffer) > n:
            self.fail(BenchError(f"a request was refused: {buffer.decode('utf-8', 'replace')}"))
            return
        self.answered(buffer)
        self.latencies.append(now - self.t_sent)
        if now < self._t_end:
            self.start()
        else:
            self.done.set_result(None)
            self.close()


@dataclass(slots=True)
class Run:
    """One run of the generator against one program. Times in nanoseconds."""

    t_start: int
    t_end: int
    cpu_s: float
    n_connects: int
    exchanges: list[wire.Exchange]
    latencies: list[int]

    @property
    def wall_s(self) -> float:
        return (self.t_end - self.t_start) / 1e9


L = TypeVar("L", _StreamLane, _RequestLane)


async def _drive(lanes: Sequence[L], timeout_s: float) -> tuple[int, int, float]:
    """Opens all connections, then starts all lanes at once. Returns start, end and the CPU seconds between."""
    await asyncio.gather(*(lane.open() for lane in lanes))
    cpu = time.process_time()
    t_start = clock()
    for lane in lanes:
        lane.start()
    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.gather(*(lane.done for lane in lanes))
    except TimeoutError:
        raise BenchError(
            f"a run did not end within {timeout_s:g} s: lower --predict or raise --timeout"
        ) from None
    finally:
        t_end = clock()
        cpu = time.process_time() - cpu
        for lane in lanes:
            lane.close()
    return t_start, t_end, cpu


def run_streams(address: Address, plans: Sequence[Sequence[bytes]], timeout_s: float) -> Run:
    """One lane a plan; each lane sends its plan's requests, the next when the last answer has ended."""

    async def main() -> Run:
        lanes = [_StreamLane(address, plan) for plan in plans]
        t_start, t_end, cpu_s = await _drive(lanes, timeout_s)
        exchanges = [exchange for lane in lanes for exchange in lane.exchanges]
        return Run(t_start, t_end, cpu_s, sum(lane.n_connects for lane in lanes), exchanges, [])

    return _run(main)


def run_requests(
    address: Address, requests: Sequence[bytes], n_lanes: int, seconds: float, timeout_s: float
) -> Run:
    """The requests in turn, again and again, on `n_lanes` connections."""

    async def main() -> Run:
        t_stop = clock() + int(seconds * 1e9)
        data = itertools.cycle(requests)
        lanes = [_RequestLane(address, data, t_stop) for _ in range(n_lanes)]
        t_start, t_end, cpu_s = await _drive(lanes, timeout_s + seconds)
        latencies = [latency for lane in lanes for latency in lane.latencies]
        return Run(t_start, t_end, cpu_s, sum(lane.n_connects for lane in lanes), [], latencies)

    return _run(main)


def _run(main: Callable[[], Coroutine[None, None, Run]]) -> Run:
    """No garbage collection while times are taken."""
    gc.collect()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main())
    finally:
        gc.enable()
