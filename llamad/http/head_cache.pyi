from llamad.http.cors import Cors

HEADS_MAX: int
PIECE_MAX: int

class Heads:
    def __init__(self, cors: Cors) -> None: ...
