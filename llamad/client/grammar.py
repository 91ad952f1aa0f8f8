"""The front's handle of a grammar that an engine has compiled."""

from __future__ import annotations

from typing import Protocol


class GrammarOwner(Protocol):
    def drop_grammar(self, number: int) -> None:
        """Drop the grammar in the engine. May be called on any thread."""
        ...


class EngineGrammar:
    """A reference to a compiled grammar. Tasks that use the grammar have one; the engine drops the grammar when the
    last reference is gone. The number is valid only for the engine behind `asking`."""

    __slots__ = ("asking", "id", "n_bytes")

    def __init__(self, id: int, n_bytes: int, asking: GrammarOwner) -> None:
        self.id = id
        self.n_bytes = n_bytes  # memory that the grammar uses
        self.asking = asking

    def __del__(self) -> None:
        self.asking.drop_grammar(self.id)
