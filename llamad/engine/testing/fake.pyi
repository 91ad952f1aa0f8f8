class Fake:
    table: int
    ctx: int
    vocab: int
    n_vocab: int
    script: bytes
    n_decodes: int
    n_graphs: int
    n_silent: int
    n_rebuilds: int
    n_samplers: int
    bad_calls: int
    n_copies: int
    def __init__(
        self,
        *,
        n_ctx: int = 512,
        n_batch: int = 64,
        script: bytes = b"",
        decode_us: int = 0,
        token_us: int = 0,
        device_us: int = 0,
        can_shift: bool = True,
        can_cut: bool = True,
        unified: bool = False,
    ) -> None: ...
    def block(self, is_blocked: bool) -> None: ...
    @property
    def is_waiting(self) -> bool: ...
    def take(self, token_us: int) -> None: ...
    def lose(self, n: int) -> None: ...
    def fail_state(self) -> None: ...
    def fail_row(self) -> None: ...
    def fail_rows(self) -> None: ...
    def fail_next(self, code: int, n_rebuild_failures: int = 0) -> None: ...
    def cells(self, seq: int) -> list[tuple[int, int]]: ...
    def held(self, seq: int) -> int: ...
