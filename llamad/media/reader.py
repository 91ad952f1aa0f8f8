"""Owns the way of a file to rows: decoder process, encoder process, and the encodings that are kept.

Runs on the event loop. The same file is encoded once: requests that send it meanwhile wait for that, later ones find
it, as long as there is room.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import OrderedDict

import msgspec

from llamad.media.child import Child, ChildError
from llamad.media.decoders import Decoders
from llamad.media.encoding import Encoding
from llamad.media.messages import Decode, Encode, Encoded, FromEncoder, Open, Opened, Pixels, Refused
from llamad.protocol.blobs import Blob

ENCODER = "llamad.media.encoder"
HASH_INLINE_MAX = 1 << 20
OPEN_SECONDS = ENCODE_SECONDS = 120.0


class MediaError(Exception):
    """Follows "the image " or "the sound ": what is wrong with it."""


class ProjectorError(Exception):
    """The projector cannot be used with this model."""


class Limits(msgspec.Struct, frozen=True):
    pixels_max: int
    seconds_max: float
    tokens_max: int  # of one file
    cache_bytes: int


async def _digest(data: bytes) -> bytes:
    """In a thread, where it takes milliseconds."""
    if len(data) <= HASH_INLINE_MAX:
        return hashlib.sha256(data).digest()
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, lambda: hashlib.sha256(data).digest())


class MediaReader:
    """Raises ProjectorError from open(), MediaError from read()."""

    def __init__(self, wanted: Open, limits: Limits) -> None:
        self._limits = limits
        self._decoders = Decoders()
        self._to_bytes = msgspec.msgpack.Encoder()
        self._from_bytes: msgspec.msgpack.Decoder[FromEncoder] = msgspec.msgpack.Decoder(FromEncoder)
        self._encoder = Child(ENCODER, self._to_bytes.encode(wanted), self._on_open)
        self._kept: OrderedDict[bytes, Encoding] = OrderedDict()
        self._n_kept_bytes = 0
        self._running: dict[bytes, asyncio.Task[Encoding]] = {}
        self.info = Opened(False, False, 0, False, 0)
        self.n_at_once = 0  # rows that see each other, at most: the engine's compute batch

    def _on_open(self, answer: bytes) -> None:
        told = self._from_bytes.decode(answer)
        if isinstance(told, Refused):
            raise OSError(told.reason)
        assert isinstance(told, Opened)
        self.info = told

    async def open(self) -> Opened:
        """Starts the encoder; what it can do."""
        try:
            await self._encoder.start(OPEN_SECONDS)
        except ChildError as error:
            raise ProjectorError(str(error)) from None
        return self.info

    async def read(self, data: bytes, *, is_sound: bool) -> Encoding:
        """A file's encoding, made now or kept from before."""
        digest = await _digest(data)
        found = self._kept.get(digest)
        if found is not None:
            self._kept.move_to_end(digest)
            return found
        task = self._running.get(digest)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._encode(digest, data, is_sound))
            self._running[digest] = task
            task.add_done_callback(lambda _: self._running.pop(digest, None))
        return await asyncio.shield(task)

    async def _encode(self, digest: bytes, data: bytes, is_sound: bool) -> Encoding:
        limits = self._limits
        wanted = Decode(len(data), is_sound, limits.pixels_max, limits.seconds_max, self.info.sample_rate)
        decoded, memory = await self._decoders.decode(data, wanted)
        if isinstance(decoded, Refused):
            raise MediaError(decoded.reason)
        try:
            if isinstance(decoded, Pixels):
                width, height = decoded.width, decoded.height
            else:
                width, height = decoded.n_samples, 0
            question = self._to_bytes.encode(Encode(width, height, limits.tokens_max))
            answer, fds = await self._encoder.ask(question, [memory], ENCODE_SECONDS)
        except ChildError as error:
            raise MediaError(f"could not be encoded: {error}") from None
        finally:
            os.close(memory)
        try:
            return self._keep(digest, self._from_bytes.decode(answer), fds[0])
        finally:
            for fd in fds:
                os.close(fd)

    def _keep(self, digest: bytes, encoded: FromEncoder, rows: int) -> Encoding:
        if isinstance(encoded, Refused):
            raise MediaError(encoded.reason)
        assert isinstance(encoded, Encoded)
        n_longest = max((piece.n_tokens for piece in encoded.pieces if piece.is_non_causal), default=0)
        if n_longest > self.n_at_once:
            raise MediaError(
                f"becomes {n_longest} tokens that are read at once; start the server with -ub {n_longest}"
            )
        n_bytes = os.fstat(rows).st_size
        blob = Blob(n_bytes)
        blob.size = n_bytes
        os.preadv(rows, [blob], 0)
        encoding = Encoding(digest, encoded.pieces, blob, self.info.n_row)
        self._kept[digest] = encoding
        self._n_kept_bytes += n_bytes
        while self._n_kept_bytes > self._limits.cache_bytes and self._kept:
            _, oldest = self._kept.popitem(last=False)
            self._n_kept_bytes -= oldest.rows.capacity
        return encoding

    def close(self) -> None:
        self._decoders.close()
        self._encoder.close()
