"""Turns the text of a flag into a value and back: numbers, text, choices, switches, lists.

Runs at start-up on the main thread. Must not know any flag; an error says only what is wrong with the text, and
the parser prefixes the flag's name.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, Literal, TypeVar

import msgspec

T_co = TypeVar("T_co", covariant=True)
OnOff = Literal["on", "off"]
OnOffAuto = Literal["on", "off", "auto"]

I32_MAX = 2**31 - 1
I32_MIN = -(2**31)
F32_MAX = 3.4028234663852886e38

TRUE_WORDS = ("1", "true", "on", "enabled", "yes")
FALSE_WORDS = ("0", "false", "off", "disabled", "no")

_SIZE = re.compile(r"([0-9]{1,18})\s*([kmgt]?)(?:i?b)?", re.ASCII | re.IGNORECASE)
_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)


class Kind(msgspec.Struct, Generic[T_co], frozen=True):
    """The kind of a flag's value: its syntax and its type."""

    takes: ClassVar[int] = 1
    metavar: ClassVar[str] = "VALUE"
    is_path: ClassVar[bool] = False
    # Replaces the message of read(), which may quote the value, if the value is a secret.
    secret_error: ClassVar[str] = "the value is empty or has an empty entry"

    @abstractmethod
    def read(self, text: str) -> T_co:
        """Return the value of a text; raises ValueError with a message for the user."""

    def write(self, value: Any) -> str:
        """Return a text that `read` turns into an equal value."""
        return str(value)

    def limits(self) -> str:
        """Return a text with the values that are allowed, for the help and for errors, or "" if there is no limit."""
        return ""


def _bounds(low: float | None, high: float | None, above: float | None = None) -> str:
    if above is not None:
        return f"more than {above:g}"
    if low is not None and high is not None:
        return f"{low:g} to {high:g}" if isinstance(low, float) else f"{low} to {high}"
    if low is not None:
        return f"{low:g} or more" if isinstance(low, float) else f"{low} or more"
    return f"up to {high}" if high is not None else ""


class Int(Kind[int], frozen=True):
    """An integer. `words` are texts such as "auto", which stand for a number that may be outside the range."""

    low: int = I32_MIN
    high: int = I32_MAX
    words: Mapping[str, int] = msgspec.field(default_factory=dict)

    metavar: ClassVar[str] = "N"

    def read(self, text: str) -> int:
        word = self.words.get(text.lower())
        if word is not None:
            return word
        if not _WHOLE.fullmatch(text):
            raise ValueError(f"'{text}' is not an integer{self._or_words()}")
        # Longer numbers are out of every range, and Python refuses to convert very long ones.
        value = int(text) if len(text) < 40 else None
        if value is None or not self.low <= value <= self.high:
            raise ValueError(f"{text[:40]} is out of range; use {self._range()}{self._or_words()}")
        return value

    def limits(self) -> str:
        if self.low <= I32_MIN and self.high >= I32_MAX:
            return ""
        low = None if self.low == I32_MIN else self.low
        return _bounds(low, None if self.high == I32_MAX else self.high) + self._or_words()

    def _range(self) -> str:
        return _bounds(self.low, self.high)

    def _or_words(self) -> str:
        words = [word for word in self.words if not _WHOLE.fullmatch(word)]
        return "".join(f", {word}" for word in words)


class Float(Kind[float], frozen=True):
    """A finite number that fits a C float; `above` is an exclusive lower bound."""

    low: float | None = None
    high: float | None = None
    above: float | None = None

    metavar: ClassVar[str] = "N"

    def read(self, text: str) -> float:
        try:
            value = float(text.replace("_", "?"))
        except ValueError:
            raise ValueError(f"'{text}' is not a number") from None
        if not math.isfinite(value):
            raise ValueError(f"'{text}' is not a finite number")
        wrong = (
            abs(value) > F32_MAX
            or (self.low is not None and value < self.low)
            or (self.high is not None and value > self.high)
            or (self.above is not None and value <= self.above)
        )
        if wrong:
            raise ValueError(f"{text} is out of range; use {self.limits() or 'a smaller number'}")
        return value

    def write(self, value: Any) -> str:
        return repr(float(value))

    def limits(self) -> str:
        return _bounds(self.low, self.high, self.above)


class Inverse(Float, frozen=True):
    """A number N that is stored as 1/N."""

    def read(self, text: str) -> float:
        return 1.0 / super().read(text)

    def write(self, value: Any) -> str:
        return repr(1.0 / value)


class Size(Kind[int], frozen=True):
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

    def limits(self) -> str:
        return f"{self.low} to {self.high} bytes"


class Text(Kind[str], frozen=True):
    """Any text that is not empty."""

    metavar: ClassVar[str] = "TEXT"

    def read(self, text: str) -> str:
        if not text:
            raise ValueError("the value is empty")
        return text


class AnyText(Text, frozen=True):
    """Any text, also an empty one."""

    def read(self, text: str) -> str:
        return text


class File(Text, frozen=True):
    """A path; it need not exist."""

    metavar: ClassVar[str] = "PATH"
    is_path: ClassVar[bool] = True


class Choice(Kind[T_co], frozen=True):
    """One of a few words; `also` maps other spellings to one of them."""

    options: tuple[T_co, ...]
    also: Mapping[str, T_co] = msgspec.field(default_factory=dict)

    def read(self, text: str) -> T_co:
        word = text.lower()
        if word in self.also:
            return self.also[word]
        for option in self.options:
            if option == word:
                return option
        raise ValueError(f"'{text}' is not one of {self.limits()}")

    def limits(self) -> str:
        return ", ".join(map(str, self.options))


_ON_OFF_WORDS: dict[str, OnOff] = {**dict.fromkeys(TRUE_WORDS, "on"), **dict.fromkeys(FALSE_WORDS, "off")}
ON_OFF: Choice[OnOff] = Choice(("on", "off"), _ON_OFF_WORDS)
ON_OFF_AUTO: Choice[OnOffAuto] = Choice(("on", "off", "auto"), {**_ON_OFF_WORDS, "-1": "auto"})


class Switch(Kind[Any], frozen=True):
    """A flag without a value. It stores `on`, and its negation stores `off` (None: it has no negation)."""

    on: bool | int | str = True
    off: bool | int | str | None = False

    takes: ClassVar[int] = 0
    metavar: ClassVar[str] = ""

    def read(self, text: str) -> bool | int | str | None:
        """Return the value for a yes or no in an environment variable or `--flag=no`; None leaves it unchanged."""
        word = text.strip().lower()
        if word in TRUE_WORDS:
            return self.on
        if word in FALSE_WORDS:
            return self.off
        raise ValueError(f"'{text}' is not yes or no; use 1 or 0, on or off, true or false")

    def write(self, value: Any) -> str:
        return "on" if value == self.on else "off"


class Many(Kind[tuple[T_co, ...]], Generic[T_co], frozen=True):
    """A tuple of items. Texts are split at any character of `cut` (empty: a text is one item).

    A text equal to `none` means no items, and removes those given before.
    """

    item: Kind[T_co]
    cut: str = ","
    none: str | None = None

    def read(self, text: str) -> tuple[T_co, ...]:
        if self.none is not None and text == self.none:
            return ()
        parts = re.split(f"[{re.escape(self.cut)}]", text) if self.cut else [text]
        parts = [part.strip() for part in parts] if self.cut else parts
        if len(parts) > 1 and not all(parts):
            raise ValueError(f"'{text}' has an empty entry")
        return tuple(self.item.read(part) for part in parts)

    def write(self, value: Any) -> str:
        """Return one text for all items. Without `cut`, the caller must write them one by one."""
        if not value and self.none is not None:
            return self.none
        return self.cut[:1].join(self.item.write(item) for item in value)

    def limits(self) -> str:
        return self.item.limits()


class Pair(Kind[Any], frozen=True):
    """Two texts after one flag, or one text with both, separated by its last `joint`."""

    first: Kind[Any]
    second: Kind[Any]
    joint: str = ":"

    takes: ClassVar[int] = 2
    metavar: ClassVar[str] = "A B"

    def split(self, text: str) -> tuple[str, str] | None:
        """Return the two parts of a text that has both, or None if it has only the first."""
        left, joint, right = text.rpartition(self.joint)
        if not joint or not left:
            return None
        try:
            self.second.read(right)
        except ValueError:
            return None
        return left, right

    def read(self, text: str) -> Any:
        parts = self.split(text)
        if parts is None:
            raise ValueError(f"'{text}' is not two values separated by '{self.joint}'")
        return self.both(*parts)

    def both(self, first: str, second: str) -> Any:
        """Return the value of the two texts."""
        return self.first.read(first), self.second.read(second)

    def write(self, value: Any) -> str:
        return f"{self.first.write(value[0])}{self.joint}{self.second.write(value[1])}"
