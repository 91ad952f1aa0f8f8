"""Reads the sampling defaults in a model's file (`general.sampling.*`).

Pure functions over the metadata's texts. A file is not trusted: wrong values are ignored with a warning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from llamad.options.model_keys import SAMPLING_KEYS, SAMPLING_PREFIX
from llamad.options.option import Field
from llamad.options.sampler_names import SAMPLERS_MAX, present_name
from llamad.options.table import FIELDS
from llamad.options.values import Samplers

_SHOWN_MAX = 40


def defaults_in(texts: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Return the options that the texts set, and a warning for each text that cannot be used."""
    defaults: dict[str, Any] = {}
    warnings = []
    for key, text in texts.items():
        name = SAMPLING_KEYS[key]
        try:
            defaults[name] = _samplers(text) if name == "samplers" else _number(FIELDS[name], text)
        except ValueError as error:
            shown = text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."
            warnings.append(f"the model's {SAMPLING_PREFIX}{key} is ignored: {shown!r} {error}")
    return defaults, warnings


def _samplers(text: str) -> Samplers:
    names = [present_name(name.strip()) for name in text.split(";") if name.strip()]
    known = [name for name in names if name is not None]
    if not 0 < len(known) <= SAMPLERS_MAX or len(known) < len(names):
        raise ValueError("is not a list of samplers")
    return Samplers(known)


def _number(field: Field, text: str) -> int | float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("is not a number") from None
    if not math.isfinite(value) or (field.type is int and not value.is_integer()):
        raise ValueError("is not a whole number" if field.type is int else "is not a number")
    if (
        (field.low is not None and value < field.low)
        or (field.high is not None and value > field.high)
        or (field.above is not None and value <= field.above)
    ):
        raise ValueError(f'is out of the range of "{field.name}"')
    return int(value) if field.type is int else value
