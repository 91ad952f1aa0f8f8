"""The count of state bytes in transit: bodies being received, files being read, responses being sent.

Event loop only. Allocates nothing; only decides whether there is room for one more state.
"""

from __future__ import annotations


class NoRoom(Exception):
    """Other requests use the room at the moment; the same request may succeed later."""


class Room:
    """A limit on bytes in transit. If no other request holds bytes, a request of any size is admitted; its size was
    checked before."""

    __slots__ = ("bytes_max", "n_bytes", "n_refused")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.n_bytes = 0
        self.n_refused = 0

    def hold(self) -> Hold:
        """Return a new, empty hold."""
        return Hold(self)


class Hold:
    """The bytes that one request holds. end() releases all of them; it may be called again."""

    __slots__ = ("_ended", "_room", "n_bytes")

    def __init__(self, room: Room) -> None:
        self._room = room
        self._ended = False
        self.n_bytes = 0

    def grow(self, n_bytes: int) -> None:
        """Hold n_bytes more. If it raises NoRoom, nothing has changed."""
        room = self._room
        if self._ended:
            return  # the client has disconnected; nothing would release it
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
