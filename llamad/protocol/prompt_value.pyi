def value(
    *,
    n_end: int,
    n_tokens: int,
    n_bytes: float,
    idle_s: float,
    n_returns: int = 0,
    retention_s: int = 0,
    is_named: bool = False,
    is_superseded: bool = False,
) -> float: ...
