"""Decides when a stream's tokens without text are sent: those of a stop string, and the end of the text.

Pure functions on the event loop. Some clients take each piece of data that arrives for one event. An event without text
directly before the last one would arrive in one piece with it. So such tokens are sent with the next text, or in the
last event. Must not know a dialect.
"""

from __future__ import annotations

from collections.abc import Sequence

from llamad.client.text_event import TextEvent

# The most events that are held back; each has up to a thousand tokens.
HELD_MAX = 8


def joined(pieces: Sequence[TextEvent]) -> TextEvent:
    """Return consecutive events as one event."""
    last = pieces[-1]
    return TextEvent(
        [token for piece in pieces for token in piece.tokens],
        b"".join([piece.data for piece in pieces]),
        last.n_decoded,
        last.t_us,
        last.prompt_us,
        last.predict_us,
        [one for piece in pieces for one in piece.probs],
    )
