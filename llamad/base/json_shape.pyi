from typing_extensions import Buffer

DEPTH_MAX: int
VALUES_MAX: int
TOO_MANY: int
TOO_DEEP: int

def decoded_bytes(data: Buffer) -> int: ...
def values_left(data: Buffer, values_max: int = ...) -> int: ...
