from llamad.protocol.sampling_params import Sampling

class Command:
    def __init__(
        self,
        sampling: Sampling,
        *,
        stops: list[bytes],
        bias: bytes,
        breakers: bytes,
        priority: int,
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
        answer_bytes_max: int = 0,
        progress: bool = False,
        n_cache_reuse: int = 0,
        runs: bytes = b"",
        adapters: list[tuple[int, float]] | None = None,
        base_set: int = 0,
        n_base: int = 0,
        n_base_adapters: int = 0,
    ) -> None: ...

def packed_biases(tokens: bytes, values: bytes) -> bytes: ...
def packed_run(blob: int, rows_at: int, grid_at: int, first: int, n_rows: int) -> bytes: ...
