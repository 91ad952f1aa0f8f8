"""The limits of the HTTP layer (Limits), and the process's limit of open file descriptors.
Read on the event loop. A Limits object never changes; a reload gives the server a new one."""

from __future__ import annotations

import resource

import msgspec

OFF_AT_0 = ("body_timeout",)


class Limits(msgspec.Struct, frozen=True):
    """Sizes are in bytes, times in seconds. The flags define the defaults."""

    header_max_bytes: int
    body_max_bytes: int
    # The memory of all requests together. A single request of body_max_bytes is admitted even if this is smaller.
    bodies_max_bytes: int
    # How long a client may send nothing in the middle of a request.
    read_timeout: float
    # The time from a request's first byte to the end of its head, and from there to the end of its body (0: no limit).
    # These are totals, so that a client that sends a byte now and then is cut off, too.
    header_timeout: float
    body_timeout: float
    # How long a connection may stay open between two requests.
    keepalive_timeout: float
    # How long a client may read nothing of a pending response.
    write_timeout: float
    connections_max: int
    address_connections_max: int  # connections from one address
    # The exchange calls on_pause when a stream has more unsent bytes than this.
    stream_buffer_bytes: int

    @property
    def sweep_seconds(self) -> float:
        """Return the interval between two checks of all connections for timeouts."""
        shortest = min(self.read_timeout, self.header_timeout, self.keepalive_timeout, self.write_timeout)
        if self.body_timeout:
            shortest = min(shortest, self.body_timeout)
        return min(0.5, max(0.02, shortest / 4))

    @property
    def budget_bytes(self) -> int:
        """Return the memory budget for the bodies of all requests."""
        return max(self.bodies_max_bytes, self.body_max_bytes)

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value < 0 or (value == 0 and name not in OFF_AT_0):
                raise ValueError(f"{name} must be {'0 or more' if name in OFF_AT_0 else 'greater than 0'}")


def raise_nofile(n: int) -> int:
    """Raise the soft limit of open descriptors to n if the hard limit allows it; return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return n
    limit = n if hard == resource.RLIM_INFINITY else min(n, hard)
    if limit <= soft:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    except (OSError, ValueError):
        return soft
    return limit
