"""A pool of decoder processes, which turn files into pixels or samples.

Runs on the event loop. A process starts with its first file. A file that crashes its process fails alone. If a client
disconnects, the process that decodes its file is killed.
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
        # The most recently used process is used next, so that few are started.
        self._idle: asyncio.LifoQueue[Child] = asyncio.LifoQueue()
        for child in self._children:
            self._idle.put_nowait(child)
        self._seconds_max = seconds_max
        self._encoder = msgspec.msgpack.Encoder()

    async def decode(self, data: bytes, request: Decode) -> tuple[Decoded, int]:
        """Return the result and the descriptor of its data, which the caller must close; -1 if the file was refused."""
        child = await self._idle.get()
        try:
            reply, fds = await self._ask(child, data, request)
        except ChildError as error:
            return Refused(f"could not be decoded: {error}"), -1
        finally:
            self._idle.put_nowait(child)
        decoded: Decoded
        try:
            decoded = received.decoded(reply, fds, request)
        except received.BrokenError as error:
            child.close()
            decoded = Refused(f"could not be decoded: {error}")
        if isinstance(decoded, Refused):
            for fd in fds:
                os.close(fd)
            return decoded, -1
        return decoded, fds[0]

    async def _ask(self, child: Child, data: bytes, request: Decode) -> tuple[bytes, list[int]]:
        file = sealed_memory.create("llamad-media")
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]
            sealed_memory.seal(file, contents=True)
            return await child.ask(self._encoder.encode(request), [file], self._seconds_max)
        finally:
            os.close(file)

    async def stop(self) -> None:
        """End the processes, and return when they have ended. The next file starts one again."""
        await asyncio.gather(*(child.stop() for child in self._children))

    def close(self) -> None:
        for child in self._children:
            child.close()
