from typing import Any

from llamad.engine.sampling import Sampling
from llamad.engine.vocab import Vocab

class Picker:
    is_ours: bool
    def __init__(
        self,
        vocab: Vocab,
        sampling: Sampling,
        n_vocab: int,
        *,
        bias: list[tuple[int, float]],
        breakers: list[bytes],
        ours: bool,
        packed: bytes | None = None,
    ) -> None: ...
    def accept(self, token: int) -> None: ...
    def pick(self, logits: Any) -> int: ...
    def candidates(self) -> bytes: ...
    def repeat(self, logits: Any, n: int) -> None: ...

def row_exps(row: Any, largest: float, out: Any) -> None: ...
def row_sum(row: Any) -> float: ...
