from collections.abc import Sequence

from llamad.engine.drafts.drafts import Drafter

class TextDrafter(Drafter):
    def __init__(
        self, *, n_slots: int, n_ctx: int, rules: Sequence[tuple[int, ...]], answers: bool
    ) -> None: ...
