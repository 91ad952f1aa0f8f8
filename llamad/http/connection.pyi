import asyncio
import enum
from typing import Any

from llamad.http.exchange import Exchange
from llamad.http.flow_control import Flow
from llamad.http.head import HeadReader

SKIP_MAX: int
LINGER_SECONDS: float
TURN_MAX: int

class Phase(enum.IntEnum):
    IDLE = 0
    HEAD = 1
    BODY = 2
    ANSWER = 3
    SKIP = 4
    ENDING = 5
    LINGER = 6
    CLOSED = 7

class Connection(asyncio.Protocol):
    """Compiled, so a Protocol by its methods only."""

    def __init__(self, server: Any) -> None: ...
    @property
    def server(self) -> Any: ...
    @property
    def flow(self) -> Flow: ...
    @property
    def phase(self) -> int: ...
    @property
    def deadline(self) -> float: ...
    @property
    def exchange(self) -> Exchange | None: ...
    @property
    def may_be_due(self) -> bool: ...
    @property
    def _transport(self) -> asyncio.Transport: ...
    @property
    def _head(self) -> HeadReader | None: ...
    @property
    def _stash(self) -> bytes: ...
    def abort(self) -> None: ...
    def shut(self) -> None: ...
    def drain(self) -> None: ...
    def sweep(self, now: float) -> None: ...
