"""Owns the kinds of only one or two flags: sizes, sampler lists, biases, overrides, origins.

Runs at start-up on the main thread. Must not know any flag.
"""

from __future__ import annotations

import math
import re
from ipaddress import ip_network
from typing import Any, ClassVar, Literal, cast

from llamad.flags.types.kinds import FALSE_WORDS, TRUE_WORDS, File, Float, Int, Kind, Many, Pair, Text
from llamad.flags.types.values import AdapterFile, KvOverride, Placement, ScaledFile
from llamad.options import sampler_names as samplers
from llamad.options.values import LogitBias

_SIZE = re.compile(r"([0-9]{1,18})\s*([kmgt]?)(?:i?b)?", re.ASCII | re.IGNORECASE)
_BIAS = re.compile(r"([0-9]{1,10})([+-])(.+)", re.ASCII)
_ADAPTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_NEXT_OVERRIDE = re.compile(r",(?=[^,=]+=(?:int|float|bool|str):)")
# Dots and hyphens only between other characters, as hubs name repositories.
_HUB_NAME = re.compile(r"\w+(?:[.-]\w+)*/\w+(?:[.-]\w+)*(?::[\w.-]+)?", re.ASCII)
_HUB_NAME_MAX = 256
CPUS_MAX = 512  # of ggml's masks
_C_STRING_MAX = 127  # bytes that fit beside the NUL in llama.cpp's override record


class Size(Kind, frozen=True):
    """A number of bytes; K, M, G and T are powers of 1024."""

    low: int
    high: int = 2**40

    metavar: ClassVar[str] = "BYTES"

    def read(self, text: str) -> int:
        match = _SIZE.fullmatch(text)
        if match is None:
            raise ValueError(f"'{text}' is not a size; use bytes, or for example 64K, 64M, 1G")
        value = int(match[1]) << 10 * " kmgt".index(match[2].lower() or " ")
        if not self.low <= value <= self.high:
            raise ValueError(f"{text} is out of range; use {self.limits()}")
        return value

    def hint(self) -> object:
        return int

    def limits(self) -> str:
        return f"{self.low} to {self.high} bytes"


def is_adapter_name(text: str) -> bool:
    """Whether requests can ask for an adapter by it."""
    return _ADAPTER_NAME.fullmatch(text) is not None


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


class Url(Text, frozen=True):
    """An address that can be downloaded from."""

    metavar: ClassVar[str] = "URL"
    secret_error: ClassVar[str] = "the address must begin with http:// or https://"

    def read(self, text: str) -> str:
        if not text.startswith(("http://", "https://")):
            raise ValueError(self.secret_error)
        return text


class Adapter(File, frozen=True):
    """The path of a LoRA adapter, behind its name if it has one."""

    metavar: ClassVar[str] = "[NAME=]PATH"

    def read(self, text: str) -> Any:
        name, equals, path = text.partition("=")
        if not equals or not path or not is_adapter_name(name):
            name, path = "", text
        return AdapterFile(super().read(path), 1.0, name)

    def hint(self) -> object:
        return AdapterFile

    def write(self, value: Any) -> str:
        return f"{value.name}={value.path}" if value.name else str(value.path)


class Plain(File, frozen=True):
    """A path; it acts with its full strength."""

    def read(self, text: str) -> Any:
        return ScaledFile(super().read(text), 1.0)

    def hint(self) -> object:
        return ScaledFile

    def write(self, value: Any) -> str:
        return str(value.path)


class Scaled(Pair, frozen=True):
    """A file and its scale, in two texts or in one; or several of them, with commas between."""

    metavar: ClassVar[str] = "PATH:SCALE"

    def read(self, text: str) -> Any:
        found: list[Any] = []
        for part in text.split(","):
            found += super().read(part)
        return tuple(found)

    def both(self, first: str, second: str) -> Any:
        return (self.first.read(first)._replace(scale=self.second.read(second)),)

    def hint(self) -> object:
        return Many(self.first).hint()

    def write(self, value: Any) -> str:
        return ",".join(f"{self.first.write(one)}:{self.second.write(one.scale)}" for one in value)


class Inverse(Float, frozen=True):
    """A number N that is stored as 1/N."""

    def read(self, text: str) -> float:
        return 1.0 / super().read(text)

    def write(self, value: Any) -> str:
        return repr(1.0 / value)


class Host(Kind, frozen=True):
    """One address or name to listen on, or the path of a Unix socket."""

    metavar: ClassVar[str] = "HOST"

    def read(self, text: str) -> str:
        if not text or any(character.isspace() for character in text):
            raise ValueError(f"'{text}' is not an address; use for example 127.0.0.1 or /run/llamad.sock")
        return text

    def hint(self) -> object:
        return str


class Endpoint(Kind, frozen=True):
    """HOST:PORT to connect to, with a name or an IPv4 address: llama.cpp's RPC knows no other."""

    metavar: ClassVar[str] = "HOST:PORT"

    def read(self, text: str) -> str:
        host, _, port = text.rpartition(":")
        is_port = port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 1 << 16
        if not is_port or not re.fullmatch(r"[a-z0-9_.-]{1,253}", host, re.ASCII | re.IGNORECASE):
            raise ValueError(
                f"'{text}' is not HOST:PORT with a name or an IPv4 address, for example 192.168.0.2:50052"
            )
        return f"{host}:{int(port)}"

    def hint(self) -> object:
        return str


class HostName(Kind, frozen=True):
    """A host name without a port; or "*" for any."""

    metavar: ClassVar[str] = "NAME"

    def read(self, text: str) -> str:
        if text != "*" and not re.fullmatch(r"[a-z0-9_.-]+", text, re.ASCII | re.IGNORECASE):
            raise ValueError(
                f"'{text}' is not a host name; write it without scheme and port, as llm.example.com"
            )
        return text

    def hint(self) -> object:
        return str


class Network(Kind, frozen=True):
    """An address, a network, or "unix"."""

    metavar: ClassVar[str] = "NETWORK"

    def read(self, text: str) -> str:
        if text == "unix":
            return text
        try:
            return str(ip_network(text))
        except ValueError:
            raise ValueError(
                f"'{text}' is not an address, a network or unix; write for example 10.0.0.0/8"
            ) from None

    def hint(self) -> object:
        return str


class PathPrefix(Kind, frozen=True):
    """The beginning of a URL's path; "/" and nothing at all mean none."""

    metavar: ClassVar[str] = "PATH"

    def read(self, text: str) -> str:
        path = text.strip("/")
        if not re.fullmatch(r"(?:[a-z0-9._~-]+(?:/[a-z0-9._~-]+)*)?", path, re.ASCII | re.IGNORECASE):
            raise ValueError(f"'{text}' is not a path; write for example /llm")
        return f"/{path}" if path else ""

    def hint(self) -> object:
        return str


class HttpTokens(Kind, frozen=True):
    """Comma-separated methods or headers, as in HTTP."""

    metavar: ClassVar[str] = "NAME,..."

    def read(self, text: str) -> str:
        if not re.fullmatch(
            r"[!#$%&'*+.^_`|~0-9A-Za-z-]+(\s*,\s*[!#$%&'*+.^_`|~0-9A-Za-z-]+)*", text, re.ASCII
        ):
            raise ValueError(f"'{text}' is not a list of names; write for example GET, POST")
        return text

    def hint(self) -> object:
        return str


class Origin(Kind, frozen=True):
    """A web origin: scheme, host and an optional port; or a word for several."""

    metavar: ClassVar[str] = "ORIGIN"
    words: ClassVar[tuple[str, ...]] = ("*", "auto", "localhost", "null")

    def read(self, text: str) -> str:
        if text not in self.words and not re.fullmatch(
            r"[a-z][a-z0-9+.-]*://[^\s/]+", text, re.ASCII | re.IGNORECASE
        ):
            raise ValueError(f"'{text}' is not an origin; use for example http://localhost:3000")
        return text

    def hint(self) -> object:
        return str


class Bias(Kind, frozen=True):
    """TOKEN+BIAS or TOKEN-BIAS; "-inf" forbids the token."""

    metavar: ClassVar[str] = "TOKEN+BIAS"

    def read(self, text: str) -> LogitBias:
        match = _BIAS.fullmatch(text)
        if match is None:
            raise ValueError(
                f"'{text}' is not TOKEN+BIAS or TOKEN-BIAS; use for example 15043+1 or 15043-inf"
            )
        token = Int(low=0).read(match[1])
        if match[3].lower() in ("inf", "infinity"):
            if match[2] == "+":
                raise ValueError(f"'{text}' would force one token forever; use a finite bias or -inf")
            return LogitBias(token, -math.inf)
        return LogitBias(token, Float().read(match[2] + match[3]))

    def hint(self) -> object:
        return LogitBias

    def write(self, value: Any) -> str:
        bias = value.bias
        sign = "-" if math.copysign(1.0, bias) < 0 else "+"
        return f"{value.token}{sign}{abs(bias)!r}"


class Overrides(Kind, frozen=True):
    """KEY=TYPE:VALUE, comma-separated; the types are llama.cpp's own four."""

    metavar: ClassVar[str] = "KEY=TYPE:VALUE"

    def read(self, text: str) -> tuple[KvOverride, ...]:
        return tuple(self._one(part) for part in _NEXT_OVERRIDE.split(text))

    def hint(self) -> object:
        return tuple[KvOverride, ...]

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


class Placements(Kind, frozen=True):
    """PATTERN=BUFFER, comma-separated and split as llama.cpp does: a pattern cannot contain a comma or "="."""

    metavar: ClassVar[str] = "PATTERN=BUFFER"

    def read(self, text: str) -> tuple[Placement, ...]:
        return tuple(self._one(part) for part in text.split(","))

    def hint(self) -> object:
        return tuple[Placement, ...]

    def write(self, value: Any) -> str:
        return ",".join(f"{one.pattern}={one.buffer}" for one in value)

    @staticmethod
    def _one(text: str) -> Placement:
        pattern, _, buffer = text.partition("=")
        if not pattern or not buffer:
            raise ValueError(f"'{text}' is not PATTERN=BUFFER, for example ffn_.*_exps=CPU")
        return Placement(pattern, buffer)


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


class CpuMask(Kind, frozen=True):
    """CPUs as the bits of a hexadecimal number, in ascending order."""

    metavar: ClassVar[str] = "HEX"

    def read(self, text: str) -> tuple[int, ...]:
        digits = re.fullmatch(r"(?:0x)?([0-9a-f]+)", text, re.ASCII | re.IGNORECASE)
        if digits is None:
            raise ValueError(f"'{text[:40]}' is not hexadecimal; f means the CPUs 0 to 3")
        if len(digits[1]) > CPUS_MAX // 4:
            raise ValueError(f"it has {len(digits[1])} digits; {CPUS_MAX} CPUs are possible")
        mask = int(digits[1], 16)
        return tuple(cpu for cpu in range(CPUS_MAX) if mask >> cpu & 1)

    def hint(self) -> object:
        return tuple[int, ...]

    def write(self, value: Any) -> str:
        return f"{sum(1 << cpu for cpu in value):x}"


class CpuRange(Kind, frozen=True):
    """FIRST-LAST; either may be left out."""

    metavar: ClassVar[str] = "FIRST-LAST"

    def read(self, text: str) -> tuple[int, ...]:
        ends = re.fullmatch(r"([0-9]{0,4})-([0-9]{0,4})", text, re.ASCII)
        if ends is None:
            raise ValueError(f"'{text[:40]}' is not FIRST-LAST; use for example 0-7")
        first, last = int(ends[1] or 0), int(ends[2] or CPUS_MAX - 1)
        if not first <= last < CPUS_MAX:
            raise ValueError(f"{text} is out of range; use 0-{CPUS_MAX - 1} at most, the smaller one first")
        return tuple(range(first, last + 1))

    def hint(self) -> object:
        return tuple[int, ...]

    def write(self, value: Any) -> str:
        return f"{value[0]}-{value[-1]}"


class SamplerNames(Kind, frozen=True):
    """Sampler names in order, separated by ";" (or ","); stored under their current names."""

    metavar: ClassVar[str] = "NAMES"

    def read(self, text: str) -> tuple[str, ...]:
        names = [name for name in re.split("[;,]", text) if name.strip()]
        if not names:
            raise ValueError("the list is empty; name at least one sampler")
        if len(names) > samplers.SAMPLERS_MAX:
            raise ValueError(f"the list has {len(names)} samplers; name at most {samplers.SAMPLERS_MAX}")
        return tuple(self._one(name.strip()) for name in names)

    def hint(self) -> object:
        return tuple[str, ...]

    def write(self, value: Any) -> str:
        return ";".join(value)

    @staticmethod
    def _one(text: str) -> str:
        name = samplers.present_name(text)
        if name is None:
            raise ValueError(f"'{text}' is not a sampler; use {', '.join(samplers.LETTERS.values())}")
        return name


class SamplerLetters(Kind, frozen=True):
    """The same as SamplerNames, one letter each."""

    metavar: ClassVar[str] = "LETTERS"

    def read(self, text: str) -> tuple[str, ...]:
        Text().read(text)
        if len(text) > samplers.SAMPLERS_MAX:
            raise ValueError(f"'{text[:32]}' has {len(text)} letters; use at most {samplers.SAMPLERS_MAX}")
        for letter in text:
            if letter not in samplers.LETTERS:
                known = ", ".join(f"{key} {name}" for key, name in samplers.LETTERS.items())
                raise ValueError(f"'{letter}' is not a sampler letter; use {known}")
        return tuple(samplers.LETTERS[letter] for letter in text)

    def hint(self) -> object:
        return tuple[str, ...]

    def write(self, value: Any) -> str:
        letters = {name: letter for letter, name in samplers.LETTERS.items()}
        return "".join(letters[name] for name in value)
