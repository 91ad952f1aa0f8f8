"""Turns a file into embeddings: it uses the decoder processes and the encoder process, and caches the encodings.

Runs on the event loop. A client that sends the same file again meanwhile waits for the same encoding; later it comes
from the cache. A file is decoded only when the encoder will soon take it, so few are decoded at any time, and clients
take turns. Work for clients that have disconnected is cancelled, except an encoding that has begun.
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
from llamad.protocol.blobs import Arena, Blob

ENCODER = "llamad.media.encoder"
HASH_INLINE_MAX = 1 << 20
OPEN_SECONDS = ENCODE_SECONDS = 120.0
# The number of files that are decoded or encoded at a time. One client gets at most all but one of these places: its
# next file is decoded while one is encoded, and another client's file still gets a place and an idle decoder.
N_PLACES = N_PROCESSES
N_THREADS = 2


class MediaError(Exception):
    """What is wrong with a file; the text follows "the image " or "the sound "."""


class ProjectorError(Exception):
    """The projector cannot be used with this model."""


class Limits(msgspec.Struct, frozen=True):
    pixels_max: int
    seconds_max: float
    tokens_max: int  # tokens of one file
    cache_bytes: int


class Making:
    """An encoding that is being made, and the number of requests that wait for it."""

    __slots__ = ("is_encoding", "n_waiting", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[Encoding] | None = None
        self.n_waiting = 0
        self.is_encoding = False  # the encoder works on it, and only killing it would stop that


class MediaReader:
    """Reads images and sounds for one model, whose engines map the embeddings in `arena`. open() raises ProjectorError,
    read() raises MediaError."""

    def __init__(self, request: Open, limits: Limits, arena: Arena | None = None) -> None:
        self._limits = limits
        self._arena = arena
        self._decoders = Decoders()
        self._to_bytes = msgspec.msgpack.Encoder()
        self._encoder = Child(ENCODER, self._to_bytes.encode(request), self._on_open)
        self._is_encoding = asyncio.Lock()
        self._turns = FairTurns(N_PLACES)
        self._kept: FairCache[Encoding] = FairCache(limits.cache_bytes)
        self._making: dict[tuple[int, int, bytes], Making] = {}
        self.threads = FairPool(N_THREADS, "llamad-media")  # for work that is too long for the event loop
        self.info = Opened(False, False, 0, False, 0)
        # The engine's compute batch: embeddings that attend to each other must fit into it.
        self.n_at_once = 0

    def _on_open(self, reply: bytes) -> None:
        try:
            opened = received.opened(reply)
        except received.BrokenError as error:
            raise OSError(str(error)) from None
        if isinstance(opened, Refused):
            raise OSError(opened.reason)
        self.info = opened

    async def open(self) -> Opened:
        """Start the encoder and return what its projector can do."""
        try:
            await self._encoder.start(OPEN_SECONDS)
        except ChildError as error:
            raise ProjectorError(str(error)) from None
        return self.info

    async def read(self, client: int, owner: int, data: bytes, *, is_sound: bool) -> Encoding:
        """Return a file's encoding, from the cache or a new one. Clients take turns; owners share no cached ones."""
        digest = await self._digest(client, data)
        kept = self._kept.find(owner, digest)
        if kept is not None:
            return kept
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
                self._forget(name, making)  # now: the next request must not wait for a cancelled task

    async def _digest(self, client: int, data: bytes) -> bytes:
        """Return the SHA-256 of the data. A thread computes it if that takes milliseconds."""
        if len(data) <= HASH_INLINE_MAX:
            return hashlib.sha256(data).digest()
        return await self.threads.run(client, lambda: hashlib.sha256(data).digest())

    def _begin(self, name: tuple[int, int, bytes], data: bytes, is_sound: bool) -> Making:
        making = self._making[name] = Making()
        making.task = asyncio.get_running_loop().create_task(self._make(making, name, data, is_sound))

        def done(task: asyncio.Task[Encoding]) -> None:
            self._forget(name, making)
            if not task.cancelled():
                task.exception()  # marks it as retrieved: the client may have disconnected

        making.task.add_done_callback(done)
        return making

    def _forget(self, name: tuple[int, int, bytes], making: Making) -> None:
        if self._making.get(name) is making:
            del self._making[name]

    async def _make(
        self, making: Making, name: tuple[int, int, bytes], data: bytes, is_sound: bool
    ) -> Encoding:
        """Decode and encode a file. It takes its place before it is decoded, so that at most N_PLACES decoded files are
        in memory."""
        client, owner, digest = name
        async with self._turns.place(client):
            kept = self._kept.find(owner, digest)  # another client with the same owner may have made it
            if kept is not None:
                return kept
            limits = self._limits
            request = Decode(
                len(data), is_sound, limits.pixels_max, limits.seconds_max, self.info.sample_rate
            )
            decoded, memory = await self._decoders.decode(data, request)
            del data
            if isinstance(decoded, Refused):
                raise MediaError(decoded.reason)
            try:
                if isinstance(decoded, Pixels):
                    to_encode = Encode(decoded.width, decoded.height, limits.tokens_max)
                else:
                    to_encode = Encode(decoded.n_samples, 0, limits.tokens_max)
                async with self._is_encoding:
                    making.is_encoding = True
                    return await self._encode(owner, digest, to_encode, memory)
            finally:
                os.close(memory)

    async def _encode(self, owner: int, digest: bytes, request: Encode, memory: int) -> Encoding:
        try:
            reply, fds = await self._encoder.ask(self._to_bytes.encode(request), [memory], ENCODE_SECONDS)
        except ChildError as error:
            raise MediaError(f"could not be encoded: {error}") from None
        try:
            encoded, n_bytes = received.encoded(reply, fds, self._limits.tokens_max, self.info.n_row)
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
                f"becomes {n_longest} tokens that must be decoded in one batch; start the server with -ub {n_longest}"
            )
        blob = Blob(n_bytes, self._arena)
        blob.size = n_bytes
        os.preadv(rows, [blob], 0)
        encoding = Encoding(digest, encoded.pieces, blob, self.info.n_row)
        self._kept.put(owner, digest, encoding, blob.capacity)
        return encoding

    @property
    def is_idle(self) -> bool:
        """Whether no file is being decoded or encoded."""
        return not self._making

    async def stop(self) -> None:
        """End the processes, and return when they have ended. open(), or the next file, starts them again."""
        await asyncio.gather(self._decoders.stop(), self._encoder.stop())

    def close(self) -> None:
        self.threads.close()
        self._decoders.close()
        self._encoder.close()
