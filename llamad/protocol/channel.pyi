class Descriptors:
    memory: int
    command: int
    event: int
    def __init__(self, memory: int, command: int, event: int) -> None: ...
    @classmethod
    def create(cls) -> Descriptors: ...
    def close(self) -> None: ...

class Link:
    def __init__(
        self,
        memory: int,
        command: int,
        event: int,
        *,
        n_slots: int = 0,
        n_ctx: int = 0,
        n_ubatch: int = 0,
        has_device: bool = False,
    ) -> None: ...
