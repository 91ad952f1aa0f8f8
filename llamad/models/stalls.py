"""Decides how long an engine may be silent before it hangs: a long prompt on a slow machine must never be taken for it.

Pure arithmetic over what the engine has published; knows nothing of processes.
"""

from __future__ import annotations

STALL_SECONDS_MIN = 120.0
# A step may take so many times the longest one seen,
STALL_STEPS = 20
# and a full batch so many times what its tokens took on average: the first long prompt comes after short ones.
STALL_BATCHES = 5
# Before any prompt: no model is worth serving that takes longer for a token of one.
TOKEN_SECONDS_MAX = 2.0


def limit(longest: float, n_batch: int, seconds: float, n_tokens: int) -> float:
    """In seconds, for steps of up to `n_batch` tokens, of which the longest so far took `longest`, when `n_tokens`
    prompt tokens took `seconds`."""
    full = STALL_BATCHES * n_batch * seconds / n_tokens if n_tokens else n_batch * TOKEN_SECONDS_MAX
    return max(STALL_SECONDS_MIN, STALL_STEPS * longest, full)
