# Owns: the value of a cached prompt: the time that it saves, times the chance that it is used again, for each byte. Any
# thread, engine or front; pure functions. What has the least value goes first.
#
# The chance falls with the time since the last use as people return to conversations: mostly after minutes, but also
# after days. What a client says about a prompt counts within limits: no hint makes a prompt worth more than one that
# was used again, and hints of an owner do not count while its hinted prompts take more than its share.
from libc.math cimport exp2, sqrt
from libc.stdint cimport int32_t, uint64_t

cdef enum:
    # Prefilling a token costs more at the end of a long prompt, because it attends to all tokens before it: a prompt of
    # this length costs twice as much for each token as a short one.
    ATTENTION_TOKENS = 8192
    CONVERSATION_TOKENS = 2048  # shorter prompts are rarely conversations: titles, classifications, single questions
    RETENTION_MAX = 86400
    RECENT_S = 600           # the chance of a return falls to 0.7 within this time, and to a third within an hour,
    HALF_LIFE_S = 604800     # and is halved by each week, too

cdef:
    double CHANCE_RETURNED = 1.0
    double CHANCE_NAMED = 0.7
    double CHANCE_UNKNOWN = 0.3
    double CHANCE_SUPERSEDED = 0.02
    double CHANCE_ONCE = 0.02


cdef double _chance(const PromptUse *use) noexcept nogil:
    """Return an estimate of the chance that the prompt returns."""
    cdef double idle_s = max(use.idle_s, 0.0), chance = CHANCE_UNKNOWN
    cdef double retention_s = min(max(use.retention_s, 0), <int32_t>RETENTION_MAX)
    if use.is_superseded:
        chance = CHANCE_SUPERSEDED
    elif use.n_returns > 0:
        chance = CHANCE_RETURNED
    elif use.retention_s == RETENTION_ONCE:
        chance = CHANCE_ONCE
    else:
        if use.is_named or idle_s < retention_s:
            chance = CHANCE_NAMED
        chance *= min(1.0, <double>use.n_end / CONVERSATION_TOKENS)
    idle_s = max(0.0, idle_s - retention_s)
    return chance * exp2(-idle_s / HALF_LIFE_S) / sqrt(1.0 + idle_s / RECENT_S)


cdef double prompt_value(const PromptUse *use) noexcept nogil:
    cdef double depth = <double>use.n_end - 0.5 * use.n_tokens  # of its tokens, on average
    cdef double saved = use.n_tokens * (1.0 + 2.0 * depth / ATTENTION_TOKENS)
    return saved * _chance(use) / max(1.0, use.n_bytes)


cdef void shares_add(HintShares *shares, uint64_t owner, double n_hinted) noexcept nogil:
    """Count what an owner has. Owners that are too many for the table share its last place."""
    cdef int32_t i = 0
    while i < shares.n and shares.owners[i] != owner:
        i += 1
    if i == shares.n:
        i = min(i, <int32_t>OWNERS_MAX - 1)
        shares.owners[i] = owner
        shares.hinted[i] = 0.0 if i == shares.n else shares.hinted[i]
        shares.n = max(shares.n, i + 1)
    shares.hinted[i] += n_hinted


cdef int shares_allow(const HintShares *shares, uint64_t owner, double n_max) noexcept nogil:
    """Return whether the owner's hints count: its hinted entries have at most its share of n_max."""
    cdef int32_t i
    for i in range(shares.n):
        if shares.owners[i] == owner:
            return shares.hinted[i] * shares.n <= n_max
    return shares.n < <int32_t>OWNERS_MAX


def value(*, n_end: int, n_tokens: int, n_bytes: float, idle_s: float, n_returns: int = 0, retention_s: int = 0,
          is_named: bool = False, is_superseded: bool = False) -> float:
    """Return what an entry is worth. The arguments are as in PromptUse."""
    cdef PromptUse use
    use.n_end = n_end
    use.n_tokens = n_tokens
    use.n_bytes = n_bytes
    use.idle_s = idle_s
    use.n_returns = n_returns
    use.retention_s = retention_s
    use.is_named = is_named
    use.is_superseded = is_superseded
    return prompt_value(&use)
