"""`keep_alive`: how long a model stays loaded after a request, and requests that only load or unload it.

Runs on the event loop. Clients share the model: a request can only let it sleep later than the server is set to, and a
server with one model keeps it loaded. Raises a 400 for a time that cannot be read.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from msgspec import Meta, Struct

from llamad.api.request.body import Body
from llamad.api.request.errors import bad
from llamad.api.request.ignored_fields import LeftOut
from llamad.api.service.idle_sleep import idle_limit
from llamad.api.service.served_model import ServedModel
from llamad.http.exchange import Exchange

NAME = "keep_alive"
KeepAlive = Annotated[
    int | float | str | None, Meta(description='a number of seconds, or a duration such as "5m"')
]
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PIECE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)")
_WHOLE = re.compile(rf"[+-]?(?:{_PIECE.pattern})+")
# /api/ps shows when a model sleeps, and a date has no more than four digits for the year.
_CENTURY = 100 * 365 * 86400
# A request that only loads or unloads a model is short.
_SHORT_MAX = 1024


class _Bare(Struct):
    keep_alive: KeepAlive = None
    prompt: Any = None
    messages: Any = None
    input: Any = None


_BARE = Body(_Bare)


def seconds(value: float | str | None) -> float | None:
    """Return the time in seconds, infinity if it is negative or longer than a century, or None if there is none. Raises
    a 400."""
    if value is None:
        return None
    if isinstance(value, str):
        value = _duration(value.strip())
    return value if 0 <= value <= _CENTURY else math.inf


def _duration(text: str) -> float:
    if _NUMBER.fullmatch(text):
        return float(text)
    if not _WHOLE.fullmatch(text):
        raise bad('"keep_alive" must be a number of seconds, or a duration such as "5m" or "1h30m"')
    total = sum(float(number) * _UNITS[unit] for number, unit in _PIECE.findall(text))
    return -total if text.startswith("-") else total


def asks_to_unload(exchange: Exchange) -> bool:
    """Return whether a request only unloads its model: it has no prompt, and keeps the model for no time."""
    body = exchange.request.body
    if len(body) > _SHORT_MAX or b"keep_alive" not in bytes(body):
        return False
    bare = _BARE.decode(body)
    return not (bare.prompt or bare.messages or bare.input) and seconds(bare.keep_alive) == 0


def keep(served: ServedModel, value: float | str | None, left_out: LeftOut) -> None:
    """Keep the model loaded for at least this time after its last request. A shorter time than that of the server is
    left out. Raises a 400."""
    time = seconds(value)
    if time is None:
        return
    if served.gate is not None:
        served.gate.keep(time)
    else:
        served.usage.keep_seconds = max(served.usage.keep_seconds, time)
    limit = limit_of(served)
    if time < (math.inf if limit < 0 else limit):
        left_out.add(NAME)


def limit_of(served: ServedModel) -> float:
    """Return after how many seconds without use the model sleeps; negative: never."""
    return served.gate.idle_limit if served.gate is not None else idle_limit(served)


def unload(served: ServedModel) -> None:
    """Unload the model once its running requests have ended, as POST /models/unload does. Raises ApiError if the server
    has no other model."""
    if served.gate is None:
        raise bad(
            '"keep_alive": 0 without a prompt unloads a model, but this server has only one, which all clients share'
        )
    served.gate.unload()
