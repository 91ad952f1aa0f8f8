import enum

LINGER_SECONDS: float

class Phase(enum.IntEnum):
    IDLE = 0
    HEAD = 1
    BODY = 2
    ANSWER = 3
    SKIP = 4
    ENDING = 5
    LINGER = 6
    CLOSED = 7
