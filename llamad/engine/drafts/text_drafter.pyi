from collections.abc import Sequence

from llamad.engine.drafts.drafts import Drafter
from llamad.engine.drafts.lookup_file import LookupFile

class TextDrafter(Drafter):
    def __init__(
        self,
        *,
        n_slots: int,
        n_ctx: int,
        rules: Sequence[tuple[int, ...]],
        answers: bool,
        dynamic: LookupFile | None = None,
        fixed: LookupFile | None = None,
    ) -> None: ...
