from typing import Any

from llamad.client.task import TokenProbs

def plain_event(tokens: list[int], data: bytes) -> bytes | None: ...

class TextPart:
    job: Any
    n_decoded: int
    t_last_us: int
    is_plain: bool
    def on_text(
        self,
        tokens: list[int],
        data: bytes,
        n_decoded: int,
        t_us: int,
        prompt_us: int,
        predict_us: int,
        probs: list[TokenProbs],
    ) -> None: ...
