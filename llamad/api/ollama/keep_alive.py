"""`keep_alive`: how long a model stays loaded after a request, and requests that only load or unload it.

Runs on the event loop. A model that is not kept sleeps; the next request wakes it. Raises a 400 for a time that cannot
be read.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from msgspec import Meta, Struct

from llamad.api.request.body import Body
from llamad.api.request.errors import bad
from llamad.api.service.served_model import ServedModel
from llamad.http.exchange import Exchange
from llamad.models.host_state import State

KeepAlive = Annotated[
    int | float | str | None, Meta(description='a number of seconds, or a duration such as "5m"')
]
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PIECE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_WHOLE = re.compile(rf"[+-]?(?:{_PIECE.pattern})+")
# A request that only loads or unloads a model is short.
_SHORT_MAX = 1024


class _Bare(Struct):
    keep_alive: KeepAlive = None
    prompt: Any = None
    messages: Any = None
    input: Any = None


_BARE = Body(_Bare)


def seconds(value: float | str | None) -> float | None:
    """Return the time in seconds, infinity if it is negative, or None if there is none. Raises a 400."""
    if value is None:
        return None
    if isinstance(value, str):
        value = _duration(value.strip())
    return math.inf if value < 0 else value


def _duration(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        if not _WHOLE.fullmatch(text):
            raise bad(
                '"keep_alive" must be a number of seconds, or a duration such as "5m" or "1h30m"'
            ) from None
    total = sum(float(number) * _UNITS[unit] for number, unit in _PIECE.findall(text))
    return -total if text.startswith("-") else total


def asks_to_unload(exchange: Exchange) -> bool:
    """Return whether a request only unloads its model: it has no prompt, and keeps the model for no time."""
    body = exchange.request.body
    if len(body) > _SHORT_MAX or b"keep_alive" not in bytes(body):
        return False
    bare = _BARE.decode(body)
    return not (bare.prompt or bare.messages or bare.input) and seconds(bare.keep_alive) == 0


def keep(served: ServedModel, value: float | str | None) -> None:
    """Keep the model loaded for this time after its last request, or as long as the server is set to. Raises a 400."""
    time = seconds(value)
    if served.gate is not None:
        served.gate.keep(time)
    else:
        served.usage.keep_seconds = time


def unload(served: ServedModel) -> None:
    """Unload the model once its running requests have ended."""
    if served.gate is not None:
        served.gate.unload()
    elif served.host.state is State.READY:
        served.usage.keep_seconds = 0.0
