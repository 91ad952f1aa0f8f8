"""Owns reading fields out of a JSON object: each with its type and range, each failure naming the field.

Pure functions, any thread. The only place where a JSON value's type is judged.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from llamad.api.request.errors import bad

INT32_MAX = 2**31 - 1
FLOAT_MAX = 3e38


def json_object(body: bytes | memoryview) -> dict[str, Any]:
    """The request's body as a JSON object."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise bad(f"The body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise bad("The body must be a JSON object")
    return value


def flag(body: dict[str, Any], name: str, default: bool) -> bool:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool):
        return value
    raise bad(f'"{name}" must be true or false')


def whole(body: dict[str, Any], name: str, default: int, low: int = -INT32_MAX, high: int = INT32_MAX) -> int:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise bad(f'"{name}" must be a whole number')
    if not low <= value <= high:
        raise bad(f'"{name}" must be {_range(value, low, high)}, not {_short(value)}')
    return value


def capped(body: dict[str, Any], name: str, low: int, cap: int | None, flag: str) -> int:
    """A whole number that is there and that the server's `flag` limits; None: it does not."""
    value = whole(body, name, 0, low)
    if cap is not None and value > cap:
        raise bad(f'"{name}" may be at most {cap} on this server ({flag})')
    return value


def number(
    body: dict[str, Any], name: str, default: float, low: float = -math.inf, high: float = math.inf
) -> float:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise bad(f'"{name}" must be a number')
    found = finite(value)
    if found is None:
        raise bad(f'"{name}" must be a finite number')
    if not low <= found <= high:
        raise bad(f'"{name}" must be {_range(found, low, high)}, not {found:g}')
    return found


def text(body: dict[str, Any], name: str, default: str = "") -> str:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise bad(f'"{name}" must be a string')
    return value


def texts(body: dict[str, Any], name: str, default: tuple[str, ...] = ()) -> list[str]:
    value = body.get(name)
    if value is None:
        return list(default)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise bad(f'"{name}" must be an array of strings')
    return value


def finite(value: float) -> float | None:
    """The number as the engine can hold it (a 32-bit float), or None."""
    try:
        value = float(value)
    except OverflowError:
        return None
    return value if abs(value) <= FLOAT_MAX else None


def _range(value: float, low: float, high: float) -> str:
    """The bound that was missed, or both where both are a rule of the field's own."""
    if abs(low) >= INT32_MAX or high in (INT32_MAX, math.inf):
        return f"at most {high}" if value > high else f"at least {low}"
    return f"between {low} and {high}"


def _short(value: int) -> str:
    """Thousands of digits help nobody, and Python refuses to write very many."""
    return str(value) if abs(value) < 10**20 else "a number of more than 20 digits"
