class DraftModel:
    def __init__(
        self,
        ctx: int,
        *,
        n_slots: int,
        n_ctx: int,
        n_batch: int,
        n_vocab: int,
        n_max: int,
        n_min: int,
        p_min: float,
        has_device: bool = False,
    ) -> None: ...
    def warm_up(self, token: int) -> int: ...
    @property
    def n_failures(self) -> int: ...
