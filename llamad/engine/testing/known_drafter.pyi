from llamad.engine.drafts.drafts import Drafter

class KnownDrafter(Drafter):
    n_drafts: int
    def __init__(self, texts: list[list[int]], *, n_vocab: int, share: float, seed: int = 1) -> None: ...
