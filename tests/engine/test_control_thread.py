"""The engine's control thread: an exception costs the message that it came with, and is never the silent end of all
answers."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from llamad.client.control import Control
from llamad.engine import server as engine
from llamad.flags.parse import parse
from llamad.models.host import Host
from llamad.models.host_state import State
from llamad.protocol import blobs, process
from llamad.protocol.blobs import Blob
from llamad.protocol.control_messages import Compiled
from llamad.protocol.errors import EngineFault

# A thread that ends the process ends alone here, by an exception.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
SECONDS = 30


class Compiler:
    """A model whose grammars are compiled, or not."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def compile(self, wanted: Any) -> Compiled:
        if self.error is not None:
            raise self.error
        return Compiled(wanted.id, 7, 100)

    def drop_grammar(self, number: int) -> None:
        pass


def answered(work: Callable[[Control, engine.Server], Awaitable[None]]) -> None:
    """Both ends of a control socket, the engine's in its own thread."""

    async def run() -> None:
        ours, theirs = socket.socketpair()
        server = engine.Server(theirs)
        lost: list[str] = []
        control = Control(lambda _: None, lost.append, lambda: None)
        await asyncio.get_running_loop().create_unix_connection(lambda: control, sock=ours)
        server.start()
        (thread,) = (one for one in threading.enumerate() if one.name == "llamad-control")
        try:
            async with asyncio.timeout(SECONDS):
                await work(control, server)
        finally:
            control.close()
            # It must be gone before end() ends processes again.
            await asyncio.to_thread(thread.join)
        assert lost == []

    asyncio.run(run())


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Exit statuses. Only the thread ends; this process goes on."""
    statuses: list[int] = []

    def end(status: int) -> None:
        statuses.append(status)
        raise SystemExit

    monkeypatch.setattr(engine, "end", end)
    return statuses


def test_a_blob_that_cannot_be_mapped_by_a_bug_is_answered_and_the_next_is_mapped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    errors = [RuntimeError("a fault of the map")]

    def borrow(arena: int, blob: int, capacity: int) -> bool:
        if errors:
            raise errors.pop()
        return True

    monkeypatch.setattr(blobs, "borrow", borrow)

    async def work(control: Control, server: engine.Server) -> None:
        with pytest.raises(EngineFault, match="RuntimeError: a fault of the map"):
            await control.lend(Blob(64))
        assert await control.lend(Blob(64))

    answered(work)
    assert "a message of the front failed: Lend" in caplog.text
    assert "a fault of the map" in caplog.text


def test_a_compiler_that_raises_answers(caplog: pytest.LogCaptureFixture) -> None:
    async def work(control: Control, server: engine.Server) -> None:
        with pytest.raises(EngineFault, match="AssertionError"):
            await control.compile("root ::= [a]", 1000)  # there is no model yet
        compiler: Any = Compiler()
        server.instance = compiler
        compiler.error = OSError("no more threads")
        with pytest.raises(EngineFault, match="OSError: no more threads"):
            await control.compile("root ::= [a]", 1000)
        compiler.error = None
        assert (await control.compile("root ::= [a]", 1000)).id == 7

    answered(work)
    assert "a message of the front failed: Compile" in caplog.text


def test_what_nobody_is_there_for_is_answered() -> None:
    async def work(control: Control, server: engine.Server) -> None:
        with pytest.raises(EngineFault, match="nothing handles this message"):
            await control.embed(Blob(64), [1], [], [])

    answered(work)


def test_a_message_that_cannot_be_read_ends_the_engine(ended: list[int]) -> None:
    async def work(control: Control, server: engine.Server) -> None:
        assert control._transport is not None
        control._transport.write(b"\x01\0\0\0\xc1")  # no MessagePack
        while not ended:
            await asyncio.sleep(0.005)

    answered(work)
    assert ended == [process.EXIT_CONTROL]


def test_another_engine_takes_the_place_of_one_without_a_control_thread(
    tiny: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The process went on without the thread, and the front waited for its answers for ever."""

    async def run() -> None:
        host = Host(parse(["-m", tiny, "-np", "1", "-c", "256", "-t", "1", "--no-warmup"], {}).settings.model)
        await host.load()
        first = host._process
        assert first is not None
        control: Any = first.control
        control._transport.write(b"\x01\0\0\0\xc1")
        async with asyncio.timeout(SECONDS):
            while host._process in (None, first) or host.state is not State.READY:
                await asyncio.sleep(0.01)
            assert host.engine is not None
            assert (await host.engine.compile("root ::= [a]", 1_000_000)).id
        await host.close()

    asyncio.run(run())
    assert "so this engine ends" in caplog.text
    assert "a thread that answers this process's messages failed" in caplog.text
