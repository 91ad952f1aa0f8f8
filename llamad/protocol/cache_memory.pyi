from typing import NamedTuple

from typing_extensions import Buffer

class Segment(NamedTuple):
    n_tokens: int
    checksum: int
    data: memoryview
    is_end: bool = False  # it has no cells
    begin: int = 0  # the first token whose cells it has

class EntryInfo(NamedTuple):
    id: int
    n_tokens: int
    n_bytes: int
    owner: int
    adapters: tuple[int, int, int]  # set, base, n_base: as Action.adapters and Acted.adapters
    session: int
    used: int
    checksum: int
    retention_s: int = 0  # what the client said about the prompt: prompt_value.pyi
    n_returns: int = 0

class CacheMemory:
    fd: int
    n_bytes: int
    fingerprint: bytes
    def __init__(self, fd: int = -1) -> None: ...
    def entries(self) -> list[EntryInfo]: ...
    def pin(self, id: int, begin: int = 0, end: int = ...) -> list[Segment] | None: ...
    def unpin(self, id: int) -> None: ...
    def shrink(self, n_bytes: int) -> int: ...

def checksum(data: Buffer) -> int: ...
