"""The limits of one rendering: steps, time, and the size of every value, which is checked before the value is made.

Each rendering has one Budget, on its thread; code inside the sandbox gets it from `current()`. Exceeding a limit raises
Exhausted, which no Jinja filter catches. Knows nothing of Jinja's syntax.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, MappingView
from datetime import datetime
from typing import Any

from jinja2.utils import Namespace

SECONDS = 5.0  # CPU time of the thread, so that templates do not fail on a busy machine
SIZE = 16 << 20  # characters of the output and of any one value
STEPS = 10_000_000
QUICK_SECONDS = 0.004  # CPU time of a quick rendering, for which other requests wait
QUICK_SIZE = 1 << 18  # size limit of a quick rendering; no operation on such values takes a millisecond
ELEMENT = 16  # what a list element costs beside its text, so that SIZE limits lists to a million elements
BITS = 1 << 16  # limit on an integer; above it, one division takes longer than a whole rendering should
MADE = 64  # limit on the bytes of all strings and lists together, as a multiple of the size limit
NAMESPACE = 256  # approximate bytes of a namespace
LARGE = 1 << 16  # the clock is checked after work on a value of this size

_local = threading.local()


class Exhausted(Exception):
    """A limit was exceeded. It is not a ValueError, which the filters `int` and `float` would take for a bad number."""


class Budget:
    """Counts what a rendering uses; every method either returns or raises Exhausted."""

    __slots__ = ("deadline", "left", "now", "seconds", "size", "steps")

    def __init__(self, seconds: float, size: int, now: datetime | None) -> None:
        self.seconds = seconds
        self.size = size
        self.now = now
        self.steps = 0
        self.left = size * MADE
        self.deadline = time.thread_time() + seconds

    def __enter__(self) -> Budget:
        _local.budget = self
        return self

    def __exit__(self, *_: object) -> None:
        _local.budget = None

    def tick(self) -> None:
        self.steps += 1
        if not self.steps & 63:
            self.look()

    def look(self) -> None:
        if time.thread_time() > self.deadline:
            raise Exhausted(f"rendering took longer than {self.seconds:g} s")
        if self.steps > STEPS:
            raise Exhausted(f"rendering took more than {STEPS:,} steps")

    def fit(self, n: int) -> None:
        """Check a size before a value of this size is made."""
        if n > self.size:
            raise Exhausted(f"the template makes a text or list larger than {self.size:,} characters")
        if n > LARGE:
            self.look()

    def charge(self, value: Any) -> None:
        """Count a value that was made: the sum is limited, too, because many large values would fill the memory."""
        if isinstance(value, (str, bytes, list, tuple, dict, Namespace)):
            n = sys.getsizeof(value) if not isinstance(value, Namespace) else NAMESPACE
            self.left -= n
            if self.left < 0:
                raise Exhausted("rendering makes too many large texts or lists")
            if n > LARGE:
                self.look()
        elif isinstance(value, int):
            self.number(value)

    def number(self, value: int) -> None:
        if value.bit_length() > BITS:
            raise Exhausted("the template makes a number with more than 19,000 digits")

    def weigh(self, value: Any) -> int:
        """Return the deep size of `value`; call it before an operation that walks the value. Elements may be shared, so
        ten lists of ten lists of ten lists ... are far larger to walk than in memory. The walk ends at the limit."""
        if isinstance(value, str):
            return len(value)
        total = 0
        stack = [value]
        for n in itertools.count(1):
            if not stack:
                break
            if not n & 4095:
                self.look()
            one = stack.pop()
            if isinstance(one, (str, bytes)):
                total += len(one)
            elif isinstance(one, int):
                self.number(one)
            else:
                elements = _elements(one)
                if elements:
                    total += ELEMENT * len(elements)
                    if total <= self.size:
                        stack.extend(elements)
            if total > self.size:
                self.fit(total)
        if total > LARGE:
            self.look()
        return total

    def ticked(self, values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            self.tick()
            yield value

    def gather(self, values: Iterable[Any]) -> list[Any]:
        """Return a list of an iterator's elements, if it ends soon enough."""
        elements: list[Any] = []
        for value in self.ticked(values):
            elements.append(value)
            if not len(elements) & 1023:
                self.fit(len(elements) * ELEMENT)
        self.charge(elements)
        return elements


def _elements(value: Any) -> list[Any] | tuple[Any, ...] | None:
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    if isinstance(value, MappingView):
        return list(value)  # type: ignore[call-overload, no-any-return]
    if isinstance(value, Namespace):
        return [getattr(value, "_Namespace__attrs")]  # noqa: B009 - the name is mangled
    return None


def current() -> Budget:
    budget: Budget | None = getattr(_local, "budget", None)
    if budget is None:
        raise RuntimeError("a template runs only inside a Budget")
    return budget
