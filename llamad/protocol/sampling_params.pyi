from llamad.options.table import Options

class Sampling:
    def __init__(
        self, samplers: bytes, options: Options, seed: int, newline_token: int = -1, end_token: int = -1
    ) -> None: ...
