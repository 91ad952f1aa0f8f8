"""Makes a text safe for a terminal and a log. A pure function."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return the text with newlines and control characters as escapes."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
