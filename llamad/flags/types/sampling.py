"""The kinds of sampling options: logit biases, and the order of samplers.

Runs at start-up on the main thread. Must not know any flag.
"""

from __future__ import annotations

import math
import re
from typing import Any, ClassVar

from llamad.flags.types.kinds import Float, Int, Kind, Text
from llamad.options import sampler_names as samplers
from llamad.options.values import LogitBias

_BIAS = re.compile(r"([0-9]{1,10})([+-])(.+)", re.ASCII)


class Bias(Kind[LogitBias], frozen=True):
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

    def write(self, value: Any) -> str:
        bias = value.bias
        sign = "-" if math.copysign(1.0, bias) < 0 else "+"
        return f"{value.token}{sign}{abs(bias)!r}"


class SamplerNames(Kind[tuple[str, ...]], frozen=True):
    """Sampler names in order, separated by ";" or ",". They are stored under their current names."""

    metavar: ClassVar[str] = "NAMES"

    def read(self, text: str) -> tuple[str, ...]:
        names = [name for name in re.split("[;,]", text) if name.strip()]
        if not names:
            raise ValueError("the list is empty; name at least one sampler")
        if len(names) > samplers.SAMPLERS_MAX:
            raise ValueError(f"the list has {len(names)} samplers; name at most {samplers.SAMPLERS_MAX}")
        return tuple(self._one(name.strip()) for name in names)

    def write(self, value: Any) -> str:
        return ";".join(value)

    @staticmethod
    def _one(text: str) -> str:
        name = samplers.present_name(text)
        if name is None:
            raise ValueError(f"'{text}' is not a sampler; use {', '.join(samplers.LETTERS.values())}")
        return name


class SamplerLetters(Kind[tuple[str, ...]], frozen=True):
    """Samplers in order, with one letter for each."""

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

    def write(self, value: Any) -> str:
        letters = {name: letter for letter, name in samplers.LETTERS.items()}
        return "".join(letters[name] for name in value)
