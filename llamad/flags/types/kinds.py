"""Owns how the text of a flag becomes a value and back: numbers, text, choices, switches, lists.

Runs at start-up on the main thread. Must not know any flag; an error says only what is wrong with the text, and
the parser prefixes the flag's name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import msgspec

I32_MAX = 2**31 - 1
I32_MIN = -(2**31)
F32_MAX = 3.4028234663852886e38

TRUE_WORDS = ("1", "true", "on", "enabled", "yes")
FALSE_WORDS = ("0", "false", "off", "disabled", "no")

_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)


class Kind(msgspec.Struct, frozen=True):
    """The type of a flag's value: a text, unless a kind says otherwise. `read` raises ValueError with a message for the
    user."""

    takes: ClassVar[int] = 1
    metavar: ClassVar[str] = "VALUE"
    # Stands for read()'s message where the value is a secret, which a message would quote.
    secret_error: ClassVar[str] = "the value is empty or has an empty entry"

    def read(self, text: str) -> Any:
        return text

    def hint(self) -> object:
        """The annotation of a Settings field of this kind."""
        return str

    def write(self, value: Any) -> str:
        """Text that `read` turns into an equal value."""
        return str(value)

    def limits(self) -> str:
        """The values allowed, for the help and for errors; empty when anything goes."""
        return ""


def _bounds(low: float | None, high: float | None, above: float | None = None) -> str:
    if above is not None:
        return f"more than {above:g}"
    if low is not None and high is not None:
        return f"{low:g} to {high:g}" if isinstance(low, float) else f"{low} to {high}"
    if low is not None:
        return f"{low:g} or more" if isinstance(low, float) else f"{low} or more"
    return f"up to {high}" if high is not None else ""


class Int(Kind, frozen=True):
    """An integer; `words` are texts that stand for a number outside the range, such as "auto". `optional` allows None
    as the default."""

    low: int = I32_MIN
    high: int = I32_MAX
    words: Mapping[str, int] = msgspec.field(default_factory=dict)
    optional: bool = False

    metavar: ClassVar[str] = "N"

    def read(self, text: str) -> int:
        word = self.words.get(text.lower())
        if word is not None:
            return word
        if not _WHOLE.fullmatch(text):
            raise ValueError(f"'{text}' is not an integer{self._or_words()}")
        # Longer texts are out of every range, and Python refuses to convert very long ones.
        value = int(text) if len(text) < 40 else None
        if value is None or not self.low <= value <= self.high:
            raise ValueError(f"{text[:40]} is out of range; use {self._range()}{self._or_words()}")
        return value

    def hint(self) -> object:
        return (int | None) if self.optional else int

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


class Float(Kind, frozen=True):
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

    def hint(self) -> object:
        return float

    def write(self, value: Any) -> str:
        return repr(float(value))

    def limits(self) -> str:
        return _bounds(self.low, self.high, self.above)


class Text(Kind, frozen=True):
    """Any text that is not empty; `optional` allows None as the default."""

    optional: bool = False

    metavar: ClassVar[str] = "TEXT"

    def read(self, text: str) -> str:
        if not text:
            raise ValueError("the value is empty")
        return text

    def hint(self) -> object:
        return (str | None) if self.optional else str


class AnyText(Text, frozen=True):
    """Any text, also an empty one."""

    def read(self, text: str) -> str:
        return text


class File(Text, frozen=True):
    """A path; it need not exist."""

    metavar: ClassVar[str] = "PATH"


class Choice(Kind, frozen=True):
    """One of a few words; `also` maps other spellings to one of them."""

    options: tuple[str, ...]
    also: Mapping[str, str] = msgspec.field(default_factory=dict)
    optional: bool = False

    def read(self, text: str) -> str:
        word = text.lower()
        word = self.also.get(word, word)
        if word not in self.options:
            raise ValueError(f"'{text}' is not one of {', '.join(self.options)}")
        return word

    def hint(self) -> object:
        literal: Any = Literal[self.options]
        return (literal | None) if self.optional else literal

    def limits(self) -> str:
        return ", ".join(self.options)


_ON_OFF_WORDS = {**dict.fromkeys(TRUE_WORDS, "on"), **dict.fromkeys(FALSE_WORDS, "off")}
ON_OFF = Choice(("on", "off"), _ON_OFF_WORDS)
ON_OFF_AUTO = Choice(("on", "off", "auto"), {**_ON_OFF_WORDS, "-1": "auto"})


class Switch(Kind, frozen=True):
    """A flag without a value. `on` is what it stores, `off` what its negation stores (None: it has none)."""

    on: bool | int | str = True
    off: bool | int | str | None = False

    takes: ClassVar[int] = 0
    metavar: ClassVar[str] = ""

    def read(self, text: str) -> bool | int | str | None:
        """The value for a yes or no, as an environment variable or `--flag=no` gives it; None: unchanged."""
        word = text.strip().lower()
        if word in TRUE_WORDS:
            return self.on
        if word in FALSE_WORDS:
            return self.off
        raise ValueError(f"'{text}' is not yes or no; use 1 or 0, on or off, true or false")

    def hint(self) -> object:
        return type(self.on)

    def write(self, value: Any) -> str:
        return "on" if value == self.on else "off"


class Many(Kind, frozen=True):
    """A tuple of items. Texts are split at any character of `cut` (empty: a text is one item).

    A text equal to `none` means no items, and drops those given before.
    """

    item: Kind
    cut: str = ","
    none: str | None = None

    def read(self, text: str) -> tuple[Any, ...]:
        if self.none is not None and text == self.none:
            return ()
        parts = re.split(f"[{re.escape(self.cut)}]", text) if self.cut else [text]
        parts = [part.strip() for part in parts] if self.cut else parts
        if len(parts) > 1 and not all(parts):
            raise ValueError(f"'{text}' has an empty entry")
        return tuple(self.item.read(part) for part in parts)

    def hint(self) -> object:
        item: Any = self.item.hint()
        return tuple[item, ...]

    def write(self, value: Any) -> str:
        """One text for all items; without `cut` the caller writes them one by one."""
        if not value and self.none is not None:
            return self.none
        return self.cut[:1].join(self.item.write(item) for item in value)

    def limits(self) -> str:
        return self.item.limits()


class Pair(Kind, frozen=True):
    """Two texts after one flag, or both in one text around the last `joint`."""

    first: Kind
    second: Kind
    joint: str = ":"

    takes: ClassVar[int] = 2
    metavar: ClassVar[str] = "A B"

    def split(self, text: str) -> tuple[str, str] | None:
        """The two parts of a text that has both; None if it is only the first."""
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
        """The value of the two texts."""
        return self.first.read(first), self.second.read(second)

    def hint(self) -> object:
        first: Any = self.first.hint()
        second: Any = self.second.hint()
        return tuple[first, second]

    def write(self, value: Any) -> str:
        return f"{self.first.write(value[0])}{self.joint}{self.second.write(value[1])}"
