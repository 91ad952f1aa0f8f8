"""The front's handle of a grammar that an engine has compiled."""

from __future__ import annotations

from typing import Protocol


class GrammarOwner(Protocol):
    def drop_grammar(self, number: int) -> None:
        """Drop the grammar in the engine. May be called on any thread."""
        ...


class EngineGrammar:
    """A reference to a compiled grammar. Tasks that use the grammar have one; the engine drops the grammar when the
    last reference is gone. The number is valid only for the engine behind `asking`; another engine would compile `text`
    again."""

    __slots__ = ("__weakref__", "asking", "id", "n_bytes", "text", "time_max_us")

    def __init__(self, id: int, n_bytes: int, asking: GrammarOwner, text: str, time_max_us: int) -> None:
        self.id = id
        self.n_bytes = n_bytes  # memory that the grammar uses
        self.asking = asking
        self.text = text
        self.time_max_us = time_max_us  # for compiling it

    def __del__(self) -> None:
        self.asking.drop_grammar(self.id)
