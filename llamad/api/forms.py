"""Owns requests that differ from an earlier one in prompt and seed alone: what the rest of their body means is known.

Runs on the event loop. Programs send the same options again and again, and reading them anew is most of what a short
request costs before the engine can begin with it. A form is kept of bytes that came twice in a row; whatever changes
what they mean must be part of it, or keep it from being used (early.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from llamad.api.generation import Generation
from llamad.api.shape import Shape, shape_of
from llamad.engine.command import Command
from llamad.engine.vocab import Vocab

FORMS_MAX = 8


@dataclass(frozen=True, slots=True)
class Form:
    """All of a request but its prompt and, where it says one, its seed."""

    shape: Shape
    command: Command
    generation: Generation
    has_random_seed: bool  # each request has another


class Forms:
    """Those of one endpoint; the one that was last used comes first, and those that were not for long are dropped."""

    __slots__ = ("_known", "_last")

    def __init__(self) -> None:
        self._known: list[Form] = []
        self._last: Shape | None = None

    def find(self, body: bytes, vocab: Vocab) -> tuple[Form, bytes, int] | None:
        """The form of a request, the tokens of its prompt, and its own seed or -1."""
        for i, form in enumerate(self._known):
            found = form.shape.read(body, vocab)
            if found is not None:
                if i:
                    self._known.insert(0, self._known.pop(i))
                return form, *found
        return None

    def recurring(self, body: bytes, vocab: Vocab, has_seed: bool) -> Shape | None:
        """The shape of a valid body, if the last one that came here had the same: then it is worth a form."""
        shape = shape_of(body, vocab, has_seed)
        if shape is None or shape != self._last:
            self._last = shape
            return None
        return shape

    def add(self, form: Form) -> None:
        self._known = [form, *self._known[: FORMS_MAX - 1]]
