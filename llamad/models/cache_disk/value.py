"""What an entry is worth: the one function that decides which entries stay.

Pure. The value is the time that the entry saves, times the chance that its prompt returns, for each byte that it takes.
"""

from __future__ import annotations

import msgspec

# The chance of a return halves in this time without one.
HALF_LIFE_SECONDS = 24 * 3600.0
# Reading a prompt costs more than its length, because each token attends to all before it: twice as much from here on.
ATTENTION_TOKENS = 8192
# Shorter prompts are rarely conversations: titles, classifications, single questions.
CONVERSATION_TOKENS = 2048

CHANCE_RETURNED = 1.0  # a prompt that was used again will be used again
CHANCE_NAMED = 0.7  # the client names its conversation
CHANCE_UNKNOWN = 0.3
CHANCE_SUPERSEDED = 0.01  # a longer entry begins with all of its tokens


class Worth(msgspec.Struct, frozen=True):
    """What the value of an entry depends on."""

    n_tokens: int
    n_bytes: int
    idle_seconds: float  # since its last use
    has_returned: bool = False
    has_session: bool = False
    is_superseded: bool = False


def chance(one: Worth) -> float:
    """Return an estimate of the chance that the prompt returns."""
    if one.is_superseded:
        first = CHANCE_SUPERSEDED
    elif one.has_returned:
        first = CHANCE_RETURNED
    else:
        first = CHANCE_NAMED if one.has_session else CHANCE_UNKNOWN
        first *= min(1.0, one.n_tokens / CONVERSATION_TOKENS)
    return float(first * 0.5 ** (max(0.0, one.idle_seconds) / HALF_LIFE_SECONDS))


def value(one: Worth) -> float:
    """Return the value of an entry; entries with the smallest values are removed first."""
    saved = one.n_tokens * (1.0 + one.n_tokens / ATTENTION_TOKENS)
    return saved * chance(one) / max(1, one.n_bytes)
