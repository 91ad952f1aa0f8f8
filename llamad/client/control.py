"""The front's end of an engine's control socket: sends questions and matches the replies to them by number.

Event loop only. A question returns its reply, or raises EngineEnded if the engine is gone, or EngineFault if the
question raised an exception in the engine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, cast

from llamad.client.grammar import EngineGrammar, GrammarOwner
from llamad.grammar.grammar import GrammarError
from llamad.protocol import control_messages as messages
from llamad.protocol.blobs import Blob
from llamad.protocol.errors import EngineEnded, EngineFault, FileRefused
from llamad.protocol.model_info import AdapterInfo

log = logging.getLogger("llamad.engine")


class Asking(GrammarOwner, Protocol):
    """The questions that an engine answers through its control socket instead of its rings."""

    async def compile(self, text: str, time_max_us: int) -> EngineGrammar:
        """Compile a grammar within this time. Raises GrammarError."""
        ...

    async def lend(self, blob: Blob) -> bool:
        """Map the blob in the engine for a command that names it. Return False if there is not enough memory."""
        ...

    def give_back(self, blob: Blob) -> None: ...

    async def embed(
        self, blob: Blob, lengths: list[int], runs: list[messages.MediaRun], adapters: list[tuple[int, float]]
    ) -> messages.Embedded:
        """Compute the embeddings of a batch of texts. The blobs of the runs must have been lent before."""
        ...

    async def open_adapter(self, number: int, path: str) -> AdapterInfo:
        """Open a LoRA adapter under this number. Raises FileRefused."""
        ...

    def close_adapter(self, number: int) -> None:
        """Close an adapter of an engine that computes only embeddings."""
        ...


class Control(asyncio.Protocol):
    """`on_message` gets the messages that are not replies. `on_broken` is called with the reason when a message cannot
    be decoded, and `on_lost` when the connection is lost."""

    def __init__(
        self,
        on_message: Callable[[messages.FromEngine], None],
        on_broken: Callable[[str], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._on_message = on_message
        self._on_broken = on_broken
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.WriteTransport | None = None
        self._buffer = bytearray()
        self._waiting: dict[int, asyncio.Future[messages.Reply]] = {}
        self._next_id = 1
        self._is_closed = False

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's transport is not a subclass

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            received = [messages.decode_engine(one) for one in messages.unpack(self._buffer)]
        except Exception as error:
            self._on_broken(f"a control message cannot be read: {error}")
            return
        for message in received:
            if isinstance(message, messages.Reply):
                future = self._waiting.pop(message.id, None)
                if future is not None and not future.done():
                    future.set_result(message)
                elif isinstance(message, messages.Compiled):  # nobody waits for it any more
                    self.send(messages.DropGrammar(message.grammar))
                elif isinstance(message, messages.Lent):
                    self.send(messages.GiveBack(message.blob))
            else:
                self._on_message(message)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = (
            None  # the engine has died; uvloop raises an error for writing to a closed transport
        )
        self._on_lost()

    # Called by the client.

    def send(self, message: messages.Message) -> None:
        if self._transport is not None and not self._is_closed:
            self._transport.write(messages.packed(message))

    def close(self) -> None:
        """Close the connection; all questions that wait for a reply fail with EngineEnded."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._transport is not None:
            self._transport.close()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(EngineEnded())

    async def _ask(self, message: messages.Question) -> messages.Reply:
        if self._is_closed:
            raise EngineEnded
        future: asyncio.Future[messages.Reply] = self._loop.create_future()
        self._waiting[message.id] = future
        self.send(message)
        reply = await future
        if isinstance(reply, messages.Failed):
            raise EngineFault(reply.reason)
        return reply

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    async def compile(self, text: str, time_max_us: int) -> EngineGrammar:
        reply = await self._ask(messages.Compile(self._new_id(), text, time_max_us))
        if isinstance(reply, messages.Refused):
            raise GrammarError(reply.line, reply.column, reply.reason)
        assert isinstance(reply, messages.Compiled)
        return EngineGrammar(reply.grammar, reply.n_bytes, self, text, time_max_us)

    def drop_grammar(self, number: int) -> None:
        """Tell the engine to drop a grammar. May be called on any thread."""
        try:
            self._loop.call_soon_threadsafe(self.send, messages.DropGrammar(number))
        except RuntimeError:
            pass  # the event loop has ended

    async def lend(self, blob: Blob) -> bool:
        reply = await self._ask(messages.Lend(self._new_id(), blob.id, blob.capacity))
        assert isinstance(reply, messages.Lent)
        return reply.is_mapped

    def give_back(self, blob: Blob) -> None:
        self.send(messages.GiveBack(blob.id))

    async def embed(
        self, blob: Blob, lengths: list[int], runs: list[messages.MediaRun], adapters: list[tuple[int, float]]
    ) -> messages.Embedded:
        reply = await self._ask(
            messages.Embed(self._new_id(), blob.id, blob.capacity, lengths, runs, adapters)
        )
        assert isinstance(reply, messages.Embedded)
        return reply

    async def open_adapter(self, number: int, path: str) -> AdapterInfo:
        reply = await self._ask(messages.OpenAdapter(self._new_id(), number, path))
        if isinstance(reply, messages.AdapterRefused):
            raise FileRefused(reply.reason)
        assert isinstance(reply, messages.AdapterOpened)
        return reply.info

    def close_adapter(self, number: int) -> None:
        self.send(messages.CloseAdapter(number))
