from typing import Any

JSON: str
QUERY_MAX_BYTES: int
QUERY_PARAMETERS_MAX: int

class Head:
    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def headers(self) -> dict[str, str]: ...

class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes | memoryview
    buffer: object  # the application's own: what its body_buffer() needs to remember
    request_id: str
    peer: str
    t_start: float
    route: Any
    params: dict[str, str]
    key_name: str
    def __init__(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        headers: dict[str, str],
        request_id: str,
        peer: str,
        t_start: float,
    ) -> None: ...
    @property
    def query(self) -> dict[str, str]: ...

class Response:
    status: int
    body: bytes | memoryview
    content_type: str
    headers: tuple[tuple[str, str], ...]
    reason: str
    def __init__(
        self,
        status: int = 200,
        body: bytes | memoryview = b"",
        content_type: str = ...,
        headers: tuple[tuple[str, str], ...] = (),
        reason: str = "",
    ) -> None: ...

class RequestIds:
    def make(self) -> str: ...
    def take_or_make(self, offered: str | None) -> str: ...

def parse_target(target: bytes) -> tuple[str, bytes]: ...
def parse_query(raw: bytes) -> dict[str, str]: ...
def address_of(peer: object) -> str: ...
def peer_name(address: object) -> str: ...
