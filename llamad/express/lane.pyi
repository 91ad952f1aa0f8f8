from llamad.engine.core import Core
from llamad.engine.vocab import Vocab

HEALTH: int
TOKENIZE: int
DETOKENIZE: int
ROUTES_MAX: int

class Lane:
    def __init__(
        self,
        vocab: Vocab,
        core: Core | None,
        *,
        n_slots: int,
        n_threads: int,
        spin_us: int,
        idle_seconds: float,
        body_max: int,
        logging: bool,
        bounds: tuple[float, ...],
    ) -> None: ...
    @property
    def fd(self) -> int: ...
    @property
    def n_threads(self) -> int: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def n_back(self) -> int: ...
    def lend(
        self,
        fd: int,
        tag: int,
        kind: int,
        route: int,
        front: bytes,
        back: bytes | None,
        status: bytes,
        headers: bytes,
        peer: bytes,
        shown: bytes,
        key: bytes,
    ) -> bool: ...
    def take_back(self) -> list[tuple[int, int, bytes, bytes, float]]: ...
    def take_log(self) -> list[str]: ...
    def take_counts(self) -> tuple[list[int], list[int], float]: ...
    def recall(self) -> None: ...
    def stop(self) -> None: ...
