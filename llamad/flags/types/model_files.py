"""The kinds of values that name a model and the files beside it: repositories, adapters, overrides of metadata.

Runs at start-up on the main thread. Must not know any flag.
"""

from __future__ import annotations

import math
import re
from typing import Any, ClassVar, Literal, cast

from llamad.flags.types.kinds import FALSE_WORDS, TRUE_WORDS, File, Int, Kind, Pair, Text
from llamad.flags.types.values import AdapterFile, KvOverride, ScaledFile

# Dots and hyphens only between other characters, as hubs name repositories.
_HUB_NAME = re.compile(r"\w+(?:[.-]\w+)*/\w+(?:[.-]\w+)*(?::[\w.-]+)?", re.ASCII)
_HUB_NAME_MAX = 256
_ADAPTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_NEXT_OVERRIDE = re.compile(r",(?=[^,=]+=(?:int|float|bool|str):)")
_C_STRING_MAX = 127  # bytes that fit beside the NUL in llama.cpp's override record


class HubName(Text, frozen=True):
    """A repository of a model hub, and perhaps one of its quantizations."""

    metavar: ClassVar[str] = "USER/MODEL[:QUANT]"

    def read(self, text: str) -> str:
        if len(text) > _HUB_NAME_MAX or not _HUB_NAME.fullmatch(text):
            raise ValueError(
                f"'{text[:200]}' is not USER/MODEL or USER/MODEL:QUANT, for example"
                " ggml-org/gemma-3-1b-it-GGUF:Q4_K_M"
            )
        return text


def is_adapter_name(text: str) -> bool:
    """Return whether requests can use this text as the name of an adapter."""
    return _ADAPTER_NAME.fullmatch(text) is not None


class Adapter(Kind[AdapterFile], frozen=True):
    """The path of a LoRA adapter, after its name if it has one."""

    metavar: ClassVar[str] = "[NAME=]PATH"
    is_path: ClassVar[bool] = True

    def read(self, text: str) -> AdapterFile:
        name, equals, path = text.partition("=")
        if not equals or not path or not is_adapter_name(name):
            name, path = "", text
        return AdapterFile(File().read(path), 1.0, name)

    def write(self, value: Any) -> str:
        return f"{value.name}={value.path}" if value.name else str(value.path)


class ControlVector(Kind[ScaledFile], frozen=True):
    """The path of a control vector, with the scale 1."""

    metavar: ClassVar[str] = "PATH"
    is_path: ClassVar[bool] = True

    def read(self, text: str) -> ScaledFile:
        return ScaledFile(File().read(text), 1.0)

    def write(self, value: Any) -> str:
        return str(value.path)


class Scaled(Pair, frozen=True):
    """A file and its scale, in two texts or in one, or several of them, separated by commas."""

    metavar: ClassVar[str] = "PATH:SCALE"

    def read(self, text: str) -> Any:
        files: list[Any] = []
        for part in text.split(","):
            files += super().read(part)
        return tuple(files)

    def both(self, first: str, second: str) -> Any:
        return (self.first.read(first)._replace(scale=self.second.read(second)),)

    def write(self, value: Any) -> str:
        return ",".join(f"{self.first.write(one)}:{self.second.write(one.scale)}" for one in value)


class Overrides(Kind[tuple[KvOverride, ...]], frozen=True):
    """KEY=TYPE:VALUE, comma-separated. The four types are those of llama.cpp."""

    metavar: ClassVar[str] = "KEY=TYPE:VALUE"

    def read(self, text: str) -> tuple[KvOverride, ...]:
        return tuple(self._one(part) for part in _NEXT_OVERRIDE.split(text))

    def write(self, value: Any) -> str:
        return ",".join(f"{one.key}={one.type}:{_plain(one.value)}" for one in value)

    @staticmethod
    def _one(text: str) -> KvOverride:
        key, equals, rest = text.partition("=")
        kind, colon, raw = rest.partition(":")
        if not key or not equals or not colon:
            raise ValueError(
                f"'{text}' is not KEY=TYPE:VALUE, for example tokenizer.ggml.add_bos_token=bool:false"
            )
        if len(key.encode()) > _C_STRING_MAX:
            raise ValueError(f"the key '{key[:32]}...' is longer than {_C_STRING_MAX} bytes")
        if kind not in ("int", "float", "bool", "str"):
            raise ValueError(f"'{kind}' is not a type; use int, float, bool or str")
        type_ = cast(Literal["int", "float", "bool", "str"], kind)
        return KvOverride(key, type_, _override_value(kind, raw))


def _plain(value: float | bool | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _override_value(kind: str, raw: str) -> int | float | bool | str:
    if kind == "int":
        return Int(-(2**63), 2**63 - 1).read(raw)
    if kind == "float":
        try:
            value = float(raw)
        except ValueError:
            raise ValueError(f"'{raw}' is not a number") from None
        if not math.isfinite(value):
            raise ValueError(f"'{raw}' is not a finite number")
        return value
    if kind == "bool":
        if raw.lower() not in TRUE_WORDS + FALSE_WORDS:
            raise ValueError(f"'{raw}' is not true or false")
        return raw.lower() in TRUE_WORDS
    if len(raw.encode()) > _C_STRING_MAX:
        raise ValueError(f"the value '{raw[:32]}...' is longer than {_C_STRING_MAX} bytes")
    return raw
