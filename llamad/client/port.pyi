from typing import Any

from llamad.protocol.channel import Link
from llamad.protocol.command import Command

class Port:
    event_fd: int
    def __init__(self, link: Link) -> None: ...
    def submit(
        self,
        id: int,
        task: Command,
        prompt: bytes,
        *,
        request_id: bytes,
        key_name: bytes,
        owner: int = 0,
        client: int = 0,
        deadline_us: int = 0,
        wake: bool = True,
    ) -> bool: ...
    def announce(self) -> None: ...
    def wake(self) -> None: ...
    def abort(self, id: int) -> bool: ...
    def pause(self, id: int) -> bool: ...
    def resume(self, id: int) -> bool: ...
    def act(
        self,
        id: int,
        kind: int,
        slot: int,
        blob: int,
        *,
        nowait: bool,
        owner: int = 0,
        n_tokens: int = 0,
        n_keep: int = 0,
        n_discard: int = 0,
    ) -> bool: ...
    def stop(self) -> bool: ...
    def poll(self) -> list[tuple[Any, ...]]: ...
    def written(self) -> None: ...
    def parts(self) -> tuple[int, int, int]: ...
