"""The shortest ways through a network of streets, and what they pass."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from dataclasses import dataclass, field


@dataclass
class Street:
    to: str
    metres: float
    is_closed: bool = False


@dataclass
class Town:
    streets: dict[str, list[Street]] = field(default_factory=lambda: defaultdict(list))

    def connect(self, first: str, second: str, metres: float) -> None:
        """Adds a street that can be used both ways."""
        if metres <= 0:
            raise ValueError("a street must have a length")
        self.streets[first].append(Street(second, metres))
        self.streets[second].append(Street(first, metres))

    def close(self, first: str, second: str) -> int:
        """Closes all streets between two places, and returns how many directions that were."""
        n_closed = 0
        for begin, end in ((first, second), (second, first)):
            for street in self.streets[begin]:
                if street.to == end and not street.is_closed:
                    street.is_closed = True
                    n_closed += 1
        return n_closed

    def distances(self, start: str) -> tuple[dict[str, float], dict[str, str]]:
        """How far every place is, and from where it is reached."""
        metres = {start: 0.0}
        before: dict[str, str] = {}
        waiting = [(0.0, start)]
        while waiting:
            so_far, place = heapq.heappop(waiting)
            if so_far > metres.get(place, math.inf):
                continue
            for street in self.streets[place]:
                if street.is_closed:
                    continue
                length = so_far + street.metres
                if length < metres.get(street.to, math.inf):
                    metres[street.to] = length
                    before[street.to] = place
                    heapq.heappush(waiting, (length, street.to))
        return metres, before

    def route(self, start: str, goal: str) -> list[str]:
        """The places of the shortest way; none if there is no way."""
        _, before = self.distances(start)
        if goal != start and goal not in before:
            return []
        places = [goal]
        while places[-1] != start:
            places.append(before[places[-1]])
        return places[::-1]
