class TextEvent:
    tokens: list[int]
    data: bytes
    n_decoded: int
    t_us: int
    prompt_us: int
    predict_us: int
    probs: list[tuple[float, list[tuple[int, float]]]]
    n_drafted: int
    n_accepted: int
    is_followed: bool
    point: bytes
    ahead: bytes
    def __init__(
        self,
        tokens: list[int],
        data: bytes,
        n_decoded: int,
        t_us: int,
        prompt_us: int,
        predict_us: int,
        probs: list[tuple[float, list[tuple[int, float]]]],
        n_drafted: int = 0,
        n_accepted: int = 0,
        point: bytes = b"",
        ahead: bytes = b"",
    ) -> None: ...
