from typing import Any

from llamad.engine.sampling import Sampling
from llamad.engine.vocab import Vocab

def clock_us() -> int: ...

class Core:
    address: int
    event_fd: int
    is_failed: bool
    n_sampler_threads: int
    n_sampling: int
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
        prompt: bytes,
        sampling: Sampling,
        *,
        stops: list[bytes],
        bias: list[tuple[int, float]],
        breakers: bytes,
        request_id: bytes,
        key_name: bytes,
        priority: int,
        deadline_us: int,
        adapter_set: int,
        id_slot: int,
        n_predict: int,
        n_keep: int,
        n_discard: int,
        t_max_predict_us: int,
        stream: bool,
        cache_prompt: bool,
        context_shift: bool,
        group: int = 0,
        grammar: int = 0,
        markers: bool = False,
        n_indent: int = 0,
        n_probs: int = 0,
        post_sampling_probs: bool = False,
        penalty: bytes | None = None,
        prompt_probs: bool = False,
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
