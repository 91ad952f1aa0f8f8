"""Owns the decoder processes: a file goes to one of them and comes back as pixels or samples.

Runs on the event loop; the processes start with the first file. A file that kills its process fails alone.
"""

from __future__ import annotations

import os

import msgspec

from llamad.media.child import Child, ChildError
from llamad.media.messages import Decode, Decoded, Refused

MODULE = "llamad.media.decoder"
N_PROCESSES = 2
SECONDS_MAX = 20.0


class Decoders:
    def __init__(self, n_processes: int = N_PROCESSES, seconds_max: float = SECONDS_MAX) -> None:
        self._children = [Child(MODULE) for _ in range(n_processes)]
        self._seconds_max = seconds_max
        self._next = 0
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Decoded] = msgspec.msgpack.Decoder(Decoded)

    async def decode(self, data: bytes, wanted: Decode) -> tuple[Decoded, int]:
        """The answer, and the descriptor of its large part, which is the caller's to close; -1 where it was refused."""
        child = next((one for one in self._children if not one.is_busy), None)
        if child is None:
            child = self._children[self._next]
            self._next = (self._next + 1) % len(self._children)
        file = os.memfd_create("llamad-media", os.MFD_CLOEXEC)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]
            answer, fds = await child.ask(self._encoder.encode(wanted), [file], self._seconds_max)
        except ChildError as error:
            return Refused(f"could not be decoded: {error}"), -1
        finally:
            os.close(file)
        decoded = self._decoder.decode(answer)
        if isinstance(decoded, Refused):
            for fd in fds:
                os.close(fd)
            return decoded, -1
        return decoded, fds[0]

    def close(self) -> None:
        for child in self._children:
            child.close()
