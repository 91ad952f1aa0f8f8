from typing import Any

from llamad.protocol.command import Command
from llamad.tokenizer.vocab import Vocab

def be_brief_here() -> None: ...
def clock_us() -> int: ...

class Core:
    event_fd: int
    is_failed: bool
    n_sampler_threads: int
    n_ubatch: int
    def __init__(
        self,
        vocab: Vocab,
        ctx: int,
        *,
        n_slots: int,
        n_ctx: int,
        n_cells: int,
        n_batch: int,
        n_ubatch: int,
        n_swa: int,
        add_bos: bool,
        similarity_min: float,
        step_tokens_max: int,
        n_sampler_threads: int,
        cont_batching: bool,
        tracing: bool,
        can_share: bool = True,
        group_n: int = 1,
        group_w: int = 1,
        grammar_work: int = -1,
        has_device: bool = False,
        cache_bytes: int = 0,
    ) -> None: ...
    def warm_up(self, token: int) -> int: ...
    def run(self) -> None: ...
    def submit(
        self,
        id: int,
        task: Command,
        prompt: bytes,
        *,
        request_id: bytes,
        key_name: bytes,
        deadline_us: int = 0,
        wake: bool = True,
    ) -> bool: ...
    def rouse(self) -> None: ...
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
        n_tokens: int = 0,
        n_keep: int = 0,
        n_discard: int = 0,
    ) -> bool: ...
    def probe(self, token: int) -> list[bytes]: ...
    def stop(self) -> bool: ...
    def poll(self) -> list[tuple[Any, ...]]: ...
    def written(self) -> None: ...
    def parts(self) -> tuple[int, int, int]: ...
    def stats(self) -> dict[str, int]: ...
    def slots(self) -> list[tuple[int, int, int, int]]: ...
    def n_idle(self) -> int: ...
    def check_integrity(self) -> int: ...
    def slot_tokens(self, index: int) -> list[int]: ...
