"""The error of a catalogue that cannot be read at all."""

from __future__ import annotations

from llamad.base.printable import printable


class CatalogueError(ValueError):
    """The preset or the folder as a whole cannot be used. str() is one line that names the file and says what to do.

    At the start it ends the daemon; at a reload the old catalogue stays."""

    def __init__(self, message: str) -> None:
        # Messages quote files, which may contain control characters.
        super().__init__(printable(message))
