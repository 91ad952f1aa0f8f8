from collections.abc import Sequence

from llamad.options.sampling_table import SamplingOptions

class Sampling:
    def __init__(
        self,
        samplers: Sequence[str],
        options: SamplingOptions,
        seed: int,
        newline_token: int = -1,
        end_token: int = -1,
    ) -> None: ...
