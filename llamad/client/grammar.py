"""Owns the front's handle of a grammar that an engine has compiled."""

from __future__ import annotations

from typing import Protocol


class GrammarOwner(Protocol):
    def drop_grammar(self, number: int) -> None:
        """Any thread: the last reference may go anywhere."""
        ...


class EngineGrammar:
    """The engine forgets the grammar with the last reference to this; tasks that use it hold one. The number means
    nothing to an engine other than the one behind `asking`."""

    __slots__ = ("asking", "id", "n_bytes")

    def __init__(self, id: int, n_bytes: int, asking: GrammarOwner) -> None:
        self.id = id
        self.n_bytes = n_bytes  # memory that it takes
        self.asking = asking

    def __del__(self) -> None:
        self.asking.drop_grammar(self.id)
