"""Decides after how much silence an engine counts as hung. A long prompt on a slow machine must never count as that.

Pure arithmetic over the engine's statistics; knows nothing of processes.
"""

from __future__ import annotations

STALL_SECONDS_MIN = 120.0
# A step may take so many times as long as the longest step so far.
STALL_STEPS = 20
# A full batch may take so many times as long as its tokens took on average: a first long prompt may follow short ones.
STALL_BATCHES = 5
# Before the first prompt, a prompt token may take so long.
TOKEN_SECONDS_MAX = 2.0


def limit(longest: float, n_batch: int, seconds: float, n_tokens: int) -> float:
    """Return the limit in seconds for steps of up to `n_batch` tokens. The longest step so far took `longest` seconds,
    and `n_tokens` prompt tokens took `seconds`."""
    full = STALL_BATCHES * n_batch * seconds / n_tokens if n_tokens else n_batch * TOKEN_SECONDS_MAX
    return max(STALL_SECONDS_MIN, STALL_STEPS * longest, full)
