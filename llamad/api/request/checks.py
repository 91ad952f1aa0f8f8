"""Checks the type and range of single JSON values; every error names the field.

Pure functions, any thread. Must not know a request.
"""

from __future__ import annotations

import math
from typing import Any

from llamad.api.request.errors import ApiError, bad
from llamad.options.option import FLOAT_MAX, INT32_MAX


def flag(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise bad(f'"{name}" must be true or false')


def whole(name: str, value: Any, low: float = -INT32_MAX, high: float = INT32_MAX) -> int:
    """Return an integer: 40.0 is one, but true is not a number."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise bad(f'"{name}" must be an integer')
    if not low <= value <= high:
        raise out_of_range(name, value, low, high)
    return value


def number(
    name: str, value: Any, low: float = -math.inf, high: float = math.inf, above: float | None = None
) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise bad(f'"{name}" must be a number')
    result = finite(value)
    if result is None:
        raise bad(f'"{name}" must be a finite number')
    if above is not None and result <= above:
        raise bad(f'"{name}" must be greater than {above}, not {result:g}')
    if not low <= result <= high:
        raise out_of_range(name, result, low, high)
    return result


def text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    raise bad(f'"{name}" must be a string')


def texts(name: str, value: Any) -> list[str]:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return value
    raise bad(f'"{name}" must be an array of strings')


def over_cap(name: str, cap: int, flag: str) -> ApiError:
    """Return the error for a number above the limit of a flag."""
    return bad(f'"{name}" may be at most {cap} on this server ({flag})')


def finite(value: float) -> float | None:
    """Return the number if it fits the engine's 32-bit float, else None."""
    try:
        value = float(value)
    except OverflowError:
        return None
    return value if abs(value) <= FLOAT_MAX else None


def out_of_range(name: str, value: float, low: float, high: float) -> ApiError:
    return bad(f'"{name}" must be {_range(value, low, high)}, not {_short(value)}')


def _range(value: float, low: float, high: float) -> str:
    """Return the bound that was violated, or both if the field has both."""
    if abs(low) >= INT32_MAX or high in (INT32_MAX, FLOAT_MAX, math.inf):
        return f"at most {high}" if value > high else f"at least {low}"
    return f"between {low} and {high}"


def _short(value: float) -> str:
    """Return the number as text. Very long numbers are useless in a message, and Python refuses to format them."""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if abs(value) < 10**20 else "a number of more than 20 digits"
