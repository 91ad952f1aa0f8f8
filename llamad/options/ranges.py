"""The ranges of option values: types of numbers, and the maximum lengths of texts and lists.

Pure data, read from any thread. Must not know an option.
"""

from typing import Annotated

from msgspec import Meta

from llamad.options.option import FLOAT_MAX, INT32_MAX

Number = Annotated[float, Meta(ge=-FLOAT_MAX, le=FLOAT_MAX)]
Positive = Annotated[float, Meta(gt=0, le=FLOAT_MAX)]
FromZero = Annotated[float, Meta(ge=0, le=FLOAT_MAX)]
FromOne = Annotated[float, Meta(ge=1, le=FLOAT_MAX)]
Share = Annotated[float, Meta(ge=0, le=1)]
Whole = Annotated[int, Meta(ge=-INT32_MAX, le=INT32_MAX)]
Count = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Many = Annotated[int, Meta(ge=1, le=INT32_MAX)]
LastN = Annotated[int, Meta(ge=-1, le=INT32_MAX)]  # -1: the context size
Length = Annotated[int, Meta(ge=-2, le=INT32_MAX)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]

STOP_BYTES_MAX = 4096
RESPONSE_FIELDS_MAX = 256
RESPONSE_FIELD_MAX = 256
