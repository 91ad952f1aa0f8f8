"""Owns the count of state bytes in transit: bodies being received, files being read, responses being sent.

Event loop only. Allocates nothing; only says whether there is room for one more.
"""

from __future__ import annotations


class NoRoom(Exception):
    """Others fill the room just now; the same request may succeed in a moment."""


class Room:
    """So many bytes at once. One alone is let in whatever its size: its own limit has judged it before."""

    __slots__ = ("bytes_max", "n_bytes", "n_refused")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.n_bytes = 0
        self.n_refused = 0

    def hold(self) -> Hold:
        """A hold of nothing yet."""
        return Hold(self)


class Hold:
    """What one request takes of the room. end() gives all of it back, for good, and may be called again."""

    __slots__ = ("_ended", "_room", "n_bytes")

    def __init__(self, room: Room) -> None:
        self._room = room
        self._ended = False
        self.n_bytes = 0

    def grow(self, n_bytes: int) -> None:
        """Take so many more. Raises NoRoom, and then holds what it held before."""
        room = self._room
        if self._ended:
            return  # the client has gone, and nobody would give it back
        n_others = room.n_bytes - self.n_bytes
        if n_others and room.n_bytes + n_bytes > room.bytes_max:
            room.n_refused += 1
            raise NoRoom
        self.n_bytes += n_bytes
        room.n_bytes += n_bytes

    def end(self) -> None:
        self._ended = True
        self._room.n_bytes -= self.n_bytes
        self.n_bytes = 0
