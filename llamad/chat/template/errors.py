"""The errors of chat templates. Constants and types only."""

from __future__ import annotations

MESSAGE_MAX = 1000  # characters; a template can put a whole conversation into its message


class TemplateError(ValueError):
    """The template cannot be compiled, or it rejects these messages; the text is one line."""

    def __init__(self, message: str) -> None:
        line = " ".join(message[: 2 * MESSAGE_MAX].splitlines()).strip()
        if len(line) > MESSAGE_MAX:
            line = line[:MESSAGE_MAX] + " ..."
        super().__init__(line or "the chat template failed without a message")


class NotQuick(Exception):
    """A rendering that had to be quick took too long; nothing else is wrong with it."""
