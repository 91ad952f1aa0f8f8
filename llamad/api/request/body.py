"""Owns the way from a body's bytes to the struct of its endpoint.

Runs on the event loop. msgspec decodes a body that is right straight into its struct. One that is not is gone through
again, a field at a time: null is the same as left out and 40.0 a whole number; all else is a 400 that names the field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Any, Generic, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from llamad.api.request import checks
from llamad.api.request.errors import ApiError, bad, not_yet
from llamad.options.option import FLOAT_MAX, INT32_MAX, Field, fields_of
from llamad.options.values import NotYet

T = TypeVar("T", bound=msgspec.Struct)
Hook = Callable[[Any, Any], Any]


class Refused:
    """The type of a field that an endpoint does not take. Its description says why."""


def no_hook(type: Any, value: Any) -> Any:
    """Of endpoints without types of their own but Refused, which is seen to below."""
    raise ValueError


class Body(Generic[T]):
    """The bodies of one endpoint."""

    __slots__ = ("_decode", "_fields", "_hook", "_type")

    def __init__(self, type: type[T], hook: Hook = no_hook) -> None:
        self._type = type
        self._hook = hook
        self._fields = fields_of(type)
        self._decode = msgspec.json.Decoder(type, dec_hook=hook).decode

    def decode(self, data: bytes | memoryview) -> T:
        """Raises ApiError."""
        try:
            return self._decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return self.read(json_object(data))

    def read(self, body: dict[str, Any]) -> T:
        """The same of a body that is decoded already."""
        return _read(self._type, self._fields, body, self._hook)


def json_object(data: bytes | memoryview) -> dict[str, Any]:
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
            values[name] = _value(field, value, hook)
    for name, field in fields.items():
        if field.default is msgspec.NODEFAULT and name not in values:
            raise bad(f'"{name}" is missing')
    return type(**values)


def _value(field: Field, value: Any, hook: Hook) -> Any:
    """A field's value. Each type that a struct may have is here; a type of its own is the hook's."""
    kinds = (
        [one for one in get_args(field.type) if one is not NoneType]
        if _is_union(field.type)
        else [field.type]
    )
    kind = kinds[0]
    if len(kinds) > 1 or kind in (list[Any], dict[str, Any]):
        return _plain(field, kinds, value)
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise bad(f'"{field.name}" must be one of {", ".join(get_args(kind))}')
        return value
    if get_origin(kind) is list:
        (item,) = get_args(kind)
        found = _plain(field, [list], value)
        return [_nested(field, f"{field.name}[{i}]", item, one, hook) for i, one in enumerate(found)]
    if isinstance(kind, msgspec.StructMeta):
        return _nested(field, field.name, kind, _plain(field, [dict], value), hook)
    simple = _SIMPLE.get(kind)
    if simple is not None:
        return simple(field, value)
    return hook(kind, value)


def _is_union(type: Any) -> bool:
    return get_origin(type) in (Union, UnionType)


def _plain(field: Field, kinds: list[Any], value: Any) -> Any:
    """A value of one of these types of JSON, whatever is in it."""
    plain = [get_origin(one) or one for one in kinds]
    if type(value) not in plain:
        raise bad(f'"{field.name}" must be {field.description or _WORDS[plain[0]]}')
    return value


def _nested(field: Field, where: str, type: Any, value: Any, hook: Hook) -> Any:
    """An object inside of a field, which is named before what is wrong with it."""
    if not isinstance(value, dict):
        raise bad(f'"{field.name}" must be {field.description or "an array of objects"}')
    try:
        return _read(type, fields_of(type), value, hook)
    except ApiError as error:
        raise ApiError(error.status, f'"{where}": {error.message}') from None


def _whole(field: Field, value: Any) -> int:
    low = -INT32_MAX if field.low is None else field.low
    return checks.whole(field.name, value, low, INT32_MAX if field.high is None else field.high)


def _number(field: Field, value: Any) -> float:
    low = -FLOAT_MAX if field.low is None else field.low
    high = FLOAT_MAX if field.high is None else field.high
    return checks.number(field.name, value, low, high, field.above)


def _refused(field: Field, value: Any) -> None:
    raise bad(field.description)


def _not_yet(field: Field, value: Any) -> NotYet:
    if value == []:
        return NotYet()
    raise not_yet(field.name)


_SIMPLE: dict[Any, Callable[[Field, Any], Any]] = {
    Any: lambda field, value: value,
    bool: lambda field, value: checks.flag(field.name, value),
    int: _whole,
    float: _number,
    str: lambda field, value: checks.text(field.name, value),
    tuple[str, ...]: lambda field, value: tuple(checks.texts(field.name, value)),
    Refused: _refused,
    NotYet: _not_yet,
}
_WORDS: dict[Any, str] = {list: "an array", dict: "an object"}
