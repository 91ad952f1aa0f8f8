"""The memory into which the parts of a prompt are read on their way to the engine.

A blob is used again as soon as the engine has its part, because new memory is several times slower to fill than to
read into: the system clears each page first. Threads may take and give blobs at once.
"""

from __future__ import annotations

from llamad.protocol.blobs import Arena, Blob


class PartBlobs:
    """Blobs of `n_bytes`, enough for any part of one prompt. They are freed together, with the last part."""

    def __init__(self, n_bytes: int, arena: Arena | None) -> None:
        self._n_bytes = n_bytes
        self._arena = arena
        self._free: list[Blob] = []

    def take(self) -> Blob:
        """Return a blob that nobody uses. Raises MemoryError."""
        try:
            return self._free.pop()
        except IndexError:
            return Blob(self._n_bytes, self._arena)

    def give(self, blob: Blob) -> None:
        """Let the blob be used again. Nobody may read it any more."""
        self._free.append(blob)
