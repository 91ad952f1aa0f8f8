"""Owns the decoder processes: a file goes to one of them and comes back as pixels or samples.

Runs on the event loop; the processes start with the first file. A file that kills its process fails alone. A process
whose client leaves is ended.
"""

from __future__ import annotations

import asyncio
import os

import msgspec

from llamad.base import sealed_memory
from llamad.media import received
from llamad.media.child import Child, ChildError
from llamad.media.messages import Decode, Decoded, Refused

MODULE = "llamad.media.decoder"
N_PROCESSES = 3
SECONDS_MAX = 20.0


class Decoders:
    def __init__(self, n_processes: int = N_PROCESSES, seconds_max: float = SECONDS_MAX) -> None:
        self._children = [Child(MODULE) for _ in range(n_processes)]
        # The one used last is used next, so that few are started.
        self._idle: asyncio.LifoQueue[Child] = asyncio.LifoQueue()
        for child in self._children:
            self._idle.put_nowait(child)
        self._seconds_max = seconds_max
        self._encoder = msgspec.msgpack.Encoder()

    async def decode(self, data: bytes, wanted: Decode) -> tuple[Decoded, int]:
        """The answer, and the descriptor of its large part, which is the caller's to close; -1 where it was refused."""
        child = await self._idle.get()
        try:
            answer, fds = await self._ask(child, data, wanted)
        except ChildError as error:
            return Refused(f"could not be decoded: {error}"), -1
        finally:
            self._idle.put_nowait(child)
        decoded: Decoded
        try:
            decoded = received.decoded(answer, fds, wanted)
        except received.BrokenError as error:
            child.close()
            decoded = Refused(f"could not be decoded: {error}")
        if isinstance(decoded, Refused):
            for fd in fds:
                os.close(fd)
            return decoded, -1
        return decoded, fds[0]

    async def _ask(self, child: Child, data: bytes, wanted: Decode) -> tuple[bytes, list[int]]:
        file = sealed_memory.create("llamad-media")
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]
            sealed_memory.seal(file, contents=True)
            return await child.ask(self._encoder.encode(wanted), [file], self._seconds_max)
        finally:
            os.close(file)

    def close(self) -> None:
        for child in self._children:
            child.close()
