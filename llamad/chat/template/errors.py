"""The one error of this package. Constants and types only."""

from __future__ import annotations


class TemplateError(ValueError):
    """A template that cannot be compiled or that refuses these messages; the text is one line."""

    def __init__(self, message: str) -> None:
        super().__init__(
            " ".join(message.splitlines()).strip() or "the chat template failed without a message"
        )
