"""Owns the way of a file to rows: decoder process, encoder process, and the encodings that are kept.

Runs on the event loop. A client that sends a file again meanwhile waits for the same encoding; later it is found, as
long as there is room. A file is decoded only when the encoder will soon take it, so few are decoded at any time, and
clients take turns. Nothing goes on for clients that have left, but the encoding that has begun.
"""

from __future__ import annotations

import asyncio
import hashlib
import os

import msgspec

from llamad.base.fair_cache import FairCache
from llamad.base.fair_pool import FairPool
from llamad.base.fair_turns import FairTurns
from llamad.media import received
from llamad.media.child import Child, ChildError
from llamad.media.decoders import N_PROCESSES, Decoders
from llamad.media.encoding import Encoding
from llamad.media.messages import Decode, Encode, Encoded, Open, Opened, Pixels, Refused
from llamad.protocol.blobs import Blob

ENCODER = "llamad.media.encoder"
HASH_INLINE_MAX = 1 << 20
OPEN_SECONDS = ENCODE_SECONDS = 120.0
# Files that are decoded, or being decoded or encoded, at a time. One client has all but one of the places: its next
# file is decoded while one is encoded, and another client's file finds a place and an idle decoder.
N_PLACES = N_PROCESSES
N_THREADS = 2


class MediaError(Exception):
    """Follows "the image " or "the sound ": what is wrong with it."""


class ProjectorError(Exception):
    """The projector cannot be used with this model."""


class Limits(msgspec.Struct, frozen=True):
    pixels_max: int
    seconds_max: float
    tokens_max: int  # of one file
    cache_bytes: int


class Making:
    """An encoding that is being made, and the number of requests that wait for it."""

    __slots__ = ("is_encoding", "n_waiting", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[Encoding] | None = None
        self.n_waiting = 0
        self.is_encoding = False  # the encoder has it, and would have to be ended to stop


class MediaReader:
    """Raises ProjectorError from open(), MediaError from read()."""

    def __init__(self, wanted: Open, limits: Limits) -> None:
        self._limits = limits
        self._decoders = Decoders()
        self._to_bytes = msgspec.msgpack.Encoder()
        self._encoder = Child(ENCODER, self._to_bytes.encode(wanted), self._on_open)
        self._is_encoding = asyncio.Lock()
        self._turns = FairTurns(N_PLACES)
        self._kept: FairCache[Encoding] = FairCache(limits.cache_bytes)
        self._making: dict[tuple[int, int, bytes], Making] = {}
        self.threads = FairPool(N_THREADS, "llamad-media")  # for what is too long for the event loop
        self.info = Opened(False, False, 0, False, 0)
        self.n_at_once = 0  # rows that see each other, at most: the engine's compute batch

    def _on_open(self, answer: bytes) -> None:
        try:
            told = received.opened(answer)
        except received.BrokenError as error:
            raise OSError(str(error)) from None
        if isinstance(told, Refused):
            raise OSError(told.reason)
        self.info = told

    async def open(self) -> Opened:
        """Starts the encoder; what it can do."""
        try:
            await self._encoder.start(OPEN_SECONDS)
        except ChildError as error:
            raise ProjectorError(str(error)) from None
        return self.info

    async def read(self, client: int, owner: int, data: bytes, *, is_sound: bool) -> Encoding:
        """A file's encoding, made now or kept from before. Clients take turns; owners share nothing that is kept."""
        digest = await self._digest(client, data)
        found = self._kept.find(owner, digest)
        if found is not None:
            return found
        name = (client, owner, digest)
        making = self._making.get(name)
        if making is None:
            making = self._begin(name, data, is_sound)
        assert making.task is not None
        making.n_waiting += 1
        try:
            return await asyncio.shield(making.task)
        finally:
            making.n_waiting -= 1
            if not making.n_waiting and not making.is_encoding:
                making.task.cancel()
                self._forget(name, making)  # at once: the next request must not wait for a cancelled one

    async def _digest(self, client: int, data: bytes) -> bytes:
        """In a thread, where it takes milliseconds."""
        if len(data) <= HASH_INLINE_MAX:
            return hashlib.sha256(data).digest()
        return await self.threads.run(client, lambda: hashlib.sha256(data).digest())

    def _begin(self, name: tuple[int, int, bytes], data: bytes, is_sound: bool) -> Making:
        making = self._making[name] = Making()
        making.task = asyncio.get_running_loop().create_task(self._make(making, name, data, is_sound))

        def done(task: asyncio.Task[Encoding]) -> None:
            self._forget(name, making)
            if not task.cancelled():
                task.exception()  # its client may have left

        making.task.add_done_callback(done)
        return making

    def _forget(self, name: tuple[int, int, bytes], making: Making) -> None:
        if self._making.get(name) is making:
            del self._making[name]

    async def _make(
        self, making: Making, name: tuple[int, int, bytes], data: bytes, is_sound: bool
    ) -> Encoding:
        """The place comes before the pixels: memory for decoded files is that of N_PLACES."""
        client, owner, digest = name
        async with self._turns.place(client):
            found = self._kept.find(owner, digest)  # another client's with the same owner
            if found is not None:
                return found
            limits = self._limits
            wanted = Decode(len(data), is_sound, limits.pixels_max, limits.seconds_max, self.info.sample_rate)
            decoded, memory = await self._decoders.decode(data, wanted)
            del data
            if isinstance(decoded, Refused):
                raise MediaError(decoded.reason)
            try:
                if isinstance(decoded, Pixels):
                    question = Encode(decoded.width, decoded.height, limits.tokens_max)
                else:
                    question = Encode(decoded.n_samples, 0, limits.tokens_max)
                async with self._is_encoding:
                    making.is_encoding = True
                    return await self._encode(owner, digest, question, memory)
            finally:
                os.close(memory)

    async def _encode(self, owner: int, digest: bytes, question: Encode, memory: int) -> Encoding:
        try:
            answer, fds = await self._encoder.ask(self._to_bytes.encode(question), [memory], ENCODE_SECONDS)
        except ChildError as error:
            raise MediaError(f"could not be encoded: {error}") from None
        try:
            encoded, n_bytes = received.encoded(answer, fds, self._limits.tokens_max, self.info.n_row)
            if isinstance(encoded, Refused):
                raise MediaError(encoded.reason)
            return self._keep(owner, digest, encoded, fds[0], n_bytes)
        except received.BrokenError as error:
            self._encoder.close()
            raise MediaError(f"could not be encoded: {error}") from None
        finally:
            for fd in fds:
                os.close(fd)

    def _keep(self, owner: int, digest: bytes, encoded: Encoded, rows: int, n_bytes: int) -> Encoding:
        n_longest = max((piece.n_tokens for piece in encoded.pieces if piece.is_non_causal), default=0)
        if n_longest > self.n_at_once:
            raise MediaError(
                f"becomes {n_longest} tokens that are read at once; start the server with -ub {n_longest}"
            )
        blob = Blob(n_bytes)
        blob.size = n_bytes
        os.preadv(rows, [blob], 0)
        encoding = Encoding(digest, encoded.pieces, blob, self.info.n_row)
        self._kept.put(owner, digest, encoding, blob.capacity)
        return encoding

    def close(self) -> None:
        self.threads.close()
        self._decoders.close()
        self._encoder.close()
