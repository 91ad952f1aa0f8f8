"""The stock of a small shop: what is there, what is reserved, and what must be ordered."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    name: str
    price_cents: int
    minimum: int


class OutOfStock(Exception):
    pass


class Inventory:
    def __init__(self, items: list[Item]) -> None:
        self._items = {item.name: item for item in items}
        self._stock: dict[str, int] = defaultdict(int)
        self._reserved: dict[str, int] = defaultdict(int)

    def receive(self, name: str, n: int) -> None:
        """Puts n pieces into the stock."""
        if name not in self._items:
            raise KeyError(f"there is no item {name!r}")
        if n <= 0:
            raise ValueError("at least one piece must be received")
        self._stock[name] += n

    def available(self, name: str) -> int:
        """How many pieces are there and not reserved."""
        return self._stock[name] - self._reserved[name]

    def reserve(self, name: str, n: int) -> None:
        if self.available(name) < n:
            raise OutOfStock(f"only {self.available(name)} of {name!r} are left, not {n}")
        self._reserved[name] += n

    def ship(self, name: str, n: int) -> int:
        """Takes n reserved pieces out of the stock and returns their price in cents."""
        if self._reserved[name] < n:
            raise OutOfStock(f"only {self._reserved[name]} of {name!r} are reserved, not {n}")
        self._reserved[name] -= n
        self._stock[name] -= n
        return n * self._items[name].price_cents

    def cancel(self, name: str, n: int) -> None:
        self._reserved[name] = max(0, self._reserved[name] - n)

    def to_order(self) -> list[tuple[str, int]]:
        """The items that have fallen below their minimum, and how many of each must be ordered."""
        missing = []
        for name, item in sorted(self._items.items()):
            if self.available(name) < item.minimum:
                missing.append((name, item.minimum - self.available(name)))
        return missing

    def value_cents(self) -> int:
        return sum(n * self._items[name].price_cents for name, n in self._stock.items())
