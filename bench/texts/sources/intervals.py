"""Sets of whole numbers as sorted intervals: [begin, end) with begin < end, none of which touch."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class Intervals:
    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._begins, self._ends, strict=True))

    def __len__(self) -> int:
        return sum(end - begin for begin, end in self)

    def add(self, begin: int, end: int) -> None:
        """Adds an interval, and joins those that it overlaps or touches."""
        if begin >= end:
            raise ValueError("an interval must not be empty")
        first = bisect_left(self._ends, begin)
        last = bisect_right(self._begins, end)
        if first < last:
            begin = min(begin, self._begins[first])
            end = max(end, self._ends[last - 1])
        self._begins[first:last] = [begin]
        self._ends[first:last] = [end]

    def remove(self, begin: int, end: int) -> None:
        """Removes an interval, which may cut one into two."""
        if begin >= end:
            return
        first = bisect_right(self._ends, begin)
        last = bisect_left(self._begins, end)
        kept_begins: list[int] = []
        kept_ends: list[int] = []
        if first < last and self._begins[first] < begin:
            kept_begins.append(self._begins[first])
            kept_ends.append(begin)
        if first < last and self._ends[last - 1] > end:
            kept_begins.append(end)
            kept_ends.append(self._ends[last - 1])
        self._begins[first:last] = kept_begins
        self._ends[first:last] = kept_ends

    def contains(self, number: int) -> bool:
        index = bisect_right(self._begins, number) - 1
        return index >= 0 and number < self._ends[index]

    def gaps(self, begin: int, end: int) -> list[tuple[int, int]]:
        """What is missing between two numbers."""
        missing = []
        for first, last in self:
            if last <= begin or first >= end:
                continue
            if begin < first:
                missing.append((begin, first))
            begin = last
        if begin < end:
            missing.append((begin, end))
        return missing
