"""Owns the limits per client, and the process's file descriptor limit.
Read on the event loop; a Limits never changes, but a reload gives the server another."""

from __future__ import annotations

import resource

import msgspec

OFF_AT_0 = ("body_timeout",)


class Limits(msgspec.Struct, frozen=True):
    """Sizes in bytes, times in seconds. The flags have the defaults."""

    header_max_bytes: int
    body_max_bytes: int
    # Of all requests together; at least the largest single one is admitted.
    bodies_max_bytes: int
    # How long a request that has begun may send nothing.
    read_timeout: float
    # From a request's first byte to the end of its head, and from there to the end of its body; 0: no limit.
    # Totals, so that a client sending a byte now and then is cut off, too.
    header_timeout: float
    body_timeout: float
    # How long a connection may stay open between two requests.
    keepalive_timeout: float
    # How long a client may read nothing of a pending response.
    write_timeout: float
    connections_max: int
    address_connections_max: int  # of one address
    # A stream's unsent bytes above this make the exchange call on_pause.
    stream_buffer_bytes: int

    @property
    def sweep_seconds(self) -> float:
        """How often connections are looked at, to keep the times."""
        shortest = min(self.read_timeout, self.header_timeout, self.keepalive_timeout, self.write_timeout)
        if self.body_timeout:
            shortest = min(shortest, self.body_timeout)
        return min(0.5, max(0.02, shortest / 4))

    @property
    def budget_bytes(self) -> int:
        """For the bodies of all requests."""
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
    wanted = n if hard == resource.RLIM_INFINITY else min(n, hard)
    if wanted <= soft:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return soft
    return wanted
