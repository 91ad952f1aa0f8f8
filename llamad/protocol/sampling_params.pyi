from collections.abc import Sequence

from llamad.options.table import Options

class Sampling:
    def __init__(
        self,
        samplers: Sequence[str],
        options: Options,
        seed: int,
        newline_token: int = -1,
        end_token: int = -1,
    ) -> None: ...
