"""Decodes a request body into the struct of its endpoint.

Any thread; api/service/body_reading.py decides which. A body with too many values, or nested too deeply, is refused
before it is decoded. msgspec decodes a valid body directly. Any other body is read again field by field: null counts as
left out and 40.0 as an integer; everything else is a 400 that names the field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Any, Generic, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from llamad.api.request import checks
from llamad.api.request.errors import ApiError, bad
from llamad.base import json_shape
from llamad.options.option import FLOAT_MAX, INT32_MAX, Field, fields_of

T = TypeVar("T", bound=msgspec.Struct)
Hook = Callable[[Any, Any], Any]


class Refused:
    """The type of a field that an endpoint rejects. Its description says why."""


def no_hook(type: Any, value: Any) -> Any:
    """Reject every type. This is the hook of endpoints without types of their own; Refused is handled below."""
    raise ValueError


class Body(Generic[T]):
    """Decodes the bodies of one endpoint."""

    __slots__ = ("_decode", "_fields", "_hook", "_type")

    def __init__(self, type: type[T], hook: Hook = no_hook) -> None:
        self._type = type
        self._hook = hook
        self._fields = fields_of(type)
        self._decode = msgspec.json.Decoder(type, dec_hook=hook).decode

    def decode(self, data: bytes | memoryview) -> T:
        """Return the body as the struct of the endpoint. Raises ApiError."""
        left = json_shape.values_left(data)
        if left < 0:
            raise _beyond(left)
        try:
            return self._decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return _read(self._type, self._fields, _json_object(data), self._hook)


def _beyond(limit: int) -> ApiError:
    if limit == json_shape.TOO_DEEP:
        return bad(f"The body is nested too deeply; at most {json_shape.DEPTH_MAX} levels are allowed")
    return bad(
        f"The body has too many values or too much text; it may have {json_shape.VALUES_MAX} numbers, half as many"
        " strings, a quarter as many arrays and objects, and 8 MB of text that is not plain ASCII"
    )


def _json_object(data: bytes | memoryview) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise bad(f"The body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise bad("The body must be a JSON object")
    return value


def _read(type: type[T], fields: Mapping[str, Field], body: dict[str, Any], hook: Hook) -> T:
    values = {}
    for name, value in body.items():
        field = fields.get(name)
        if field is not None and value is not None:
            values[field.attribute] = _value(field, value, hook)
        elif value is not None and type.__struct_config__.forbid_unknown_fields:
            raise bad(f'"{name}" is not known; use {", ".join(fields)}')
    for name, field in fields.items():
        if field.default is msgspec.NODEFAULT and field.attribute not in values:
            raise bad(f'"{name}" is required')
    return type(**values)


def _value(field: Field, value: Any, hook: Hook) -> Any:
    """Return the value of a field. Handles every type except those of the hook."""
    is_union = get_origin(field.type) in (Union, UnionType)
    kinds = [one for one in get_args(field.type) if one is not NoneType] if is_union else [field.type]
    kind = kinds[0]
    if len(kinds) > 1 or kind in (list[Any], dict[str, Any]):
        return _plain(field, kinds, value)
    if get_origin(kind) is Literal:
        return _word(field, get_args(kind), value)
    if get_origin(kind) is list:
        return _array(field, kind, value)
    if isinstance(kind, msgspec.StructMeta):
        return _nested(field, kind, value, hook)
    simple = _SIMPLE.get(kind)
    return hook(kind, value) if simple is None else simple(field, value)


def _plain(field: Field, kinds: list[Any], value: Any) -> Any:
    """Return a value of one of these JSON types, with any content."""
    plain = [get_origin(one) or one for one in kinds]
    if type(value) not in plain:
        raise bad(f'"{field.name}" must be {field.description or _WORDS[plain[0]]}')
    return value


def _word(field: Field, words: tuple[str, ...], value: Any) -> Any:
    if value not in words:
        raise bad(f'"{field.name}" must be {field.description or "one of " + ", ".join(words)}')
    return value


def _array(field: Field, type: Any, value: Any) -> Any:
    """Return an array, converted at C speed, because it may be long and must not block the event loop."""
    try:
        return msgspec.convert(value, type)
    except msgspec.ValidationError:
        raise bad(f'"{field.name}" must be {field.description}') from None


def _nested(field: Field, type: Any, value: Any, hook: Hook) -> Any:
    """Return an object inside a field; errors name both fields."""
    inside = _plain(field, [dict], value)
    try:
        return _read(type, fields_of(type), inside, hook)
    except ApiError as error:
        raise ApiError(error.status, f'"{field.name}": {error.message}') from None


def _whole(field: Field, value: Any) -> int:
    low = -INT32_MAX if field.low is None else field.low
    return checks.whole(field.name, value, low, INT32_MAX if field.high is None else field.high)


def _number(field: Field, value: Any) -> float:
    low = -FLOAT_MAX if field.low is None else field.low
    high = FLOAT_MAX if field.high is None else field.high
    return checks.number(field.name, value, low, high, field.above)


def _refused(field: Field, value: Any) -> None:
    raise bad(field.description)


_SIMPLE: dict[Any, Callable[[Field, Any], Any]] = {
    Any: lambda field, value: value,
    bool: lambda field, value: checks.flag(field.name, value),
    int: _whole,
    float: _number,
    str: lambda field, value: _plain(field, [str], value),
    tuple[str, ...]: lambda field, value: tuple(checks.texts(field.name, value)),
    Refused: _refused,
}
_WORDS: dict[Any, str] = {str: "a string", list: "an array", dict: "an object"}
