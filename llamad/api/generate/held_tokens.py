"""Owns what becomes of a stream's tokens without text: those of a stop string, and the end of the text.

Pure functions on the event loop. Clients exist that take each piece that arrives for one event; an event without text
directly before the last one would come in one piece with it. So such tokens go with the next text, or into the last
event. Must not know a dialect.
"""

from __future__ import annotations

from collections.abc import Sequence

from llamad.client.text_event import TextEvent

# Events that are held back; each has up to a thousand tokens.
HELD_MAX = 8


def joined(pieces: Sequence[TextEvent]) -> TextEvent:
    """Consecutive events as one."""
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
