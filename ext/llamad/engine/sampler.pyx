# Owns: a task's sampler and its history. Opened on the engine thread, picks on sampler threads (one task on one
# thread at a time). Must not touch slots or events. It may write into the logits row: nobody reads it afterwards.
#
# Ours is any chain whose first cut is a top_k of 1 to TOPK_MAX, with nothing but penalties before it: the default
# chain and most others. The row is then scanned in place (topk.h), penalties touch only tokens that occurred, and
# the samplers behind work on k candidates.
from libc.math cimport expf
from libc.stdint cimport int32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from llamad.engine.candidates cimport (
    Candidates, candidates_draw, candidates_min_p, candidates_temperature, candidates_top_k, candidates_top_p,
    candidates_typical, candidates_xtc,
)
from llamad.engine.random cimport random_seed
from llamad.engine.table cimport (
    LLAMAD_SAMPLER_DRY, LLAMAD_SAMPLER_MIN_P, LLAMAD_SAMPLER_PENALTIES, LLAMAD_SAMPLER_TEMPERATURE,
    LLAMAD_SAMPLER_TOP_K, LLAMAD_SAMPLER_TOP_N_SIGMA, LLAMAD_SAMPLER_TOP_P, LLAMAD_SAMPLER_TYPICAL,
    LLAMAD_SAMPLER_XTC, llamad_bias, llamad_candidate, llamad_sampling, llamad_table,
)
from llamad.engine.topk cimport TOPK_MAX, topk_scratch_bytes, topk_select


# --- which chains are ours ------------------------------------------------------------------------------------

cdef int _has_penalties(const llamad_sampling *s) noexcept nogil:
    return s.repeat_last_n > 0 and not (s.repeat_penalty == 1 and s.presence_penalty == 0 and s.frequency_penalty == 0)


cdef int _is_neutral(const llamad_sampling *s, unsigned char kind) noexcept nogil:
    """Whether llama.cpp's sampler of this kind would leave everything as it is."""
    if kind == LLAMAD_SAMPLER_PENALTIES:
        return not _has_penalties(s)
    if kind == LLAMAD_SAMPLER_DRY:
        return s.dry_multiplier == 0 or s.dry_base < 1 or s.dry_penalty_last_n <= 0
    if kind == LLAMAD_SAMPLER_TOP_N_SIGMA:
        return s.top_n_sigma <= 0
    if kind == LLAMAD_SAMPLER_TOP_K:
        return s.top_k <= 0
    if kind == LLAMAD_SAMPLER_TYPICAL:
        return s.typical_p >= 1
    if kind == LLAMAD_SAMPLER_TOP_P:
        return s.top_p >= 1
    if kind == LLAMAD_SAMPLER_MIN_P:
        return s.min_p <= 0
    if kind == LLAMAD_SAMPLER_XTC:
        return s.xtc_probability <= 0 or s.xtc_threshold > 0.5
    return 0


cdef int _plan(Sampler *sampler, int32_t *n_penalties) noexcept nogil:
    """Fills k and the samplers behind the cut; 0 when the chain is not ours."""
    cdef const llamad_sampling *s = &sampler.sampling
    cdef int32_t i
    cdef unsigned char kind
    n_penalties[0] = 0
    if s.mirostat or s.top_k > TOPK_MAX or s.top_k > sampler.n_vocab:
        return 0
    for i in range(s.n_samplers):
        kind = s.samplers[i]
        if _is_neutral(s, kind):
            continue
        if kind == LLAMAD_SAMPLER_DRY or kind == LLAMAD_SAMPLER_TOP_N_SIGMA:
            return 0
        if sampler.k == 0 and kind == LLAMAD_SAMPLER_TOP_K:
            sampler.k = s.top_k
        elif sampler.k == 0 and kind == LLAMAD_SAMPLER_PENALTIES:
            n_penalties[0] += 1
        elif sampler.k == 0 or kind == LLAMAD_SAMPLER_PENALTIES:
            return 0
        else:
            sampler.after[sampler.n_after] = kind
            sampler.n_after += 1
    return sampler.k > 0 and n_penalties[0] <= 1


# --- life -----------------------------------------------------------------------------------------------------

cdef int _open_ours(Sampler *sampler, const llamad_bias *bias, int32_t n_bias, int32_t n_penalties) noexcept nogil:
    """0, or -1 without memory."""
    cdef size_t n_bytes = <size_t>n_bias * sizeof(llamad_bias)
    if n_bias:
        sampler.bias = <llamad_bias *>malloc(n_bytes)
        if sampler.bias == NULL:
            return -1
        memcpy(sampler.bias, bias, n_bytes)
        sampler.n_bias = n_bias
    if n_penalties:
        sampler.history.n_max = sampler.sampling.repeat_last_n
        sampler.history.ring = <int32_t *>malloc(<size_t>sampler.history.n_max * sizeof(int32_t))
        sampler.history.counts = <int32_t *>calloc(<size_t>sampler.n_vocab, sizeof(int32_t))
        if sampler.history.ring == NULL or sampler.history.counts == NULL:
            return -1
    random_seed(&sampler.random, sampler.sampling.seed)
    random_seed(&sampler.xtc_random, sampler.sampling.seed)
    return 0


cdef Sampler *sampler_open(const llamad_table *table, const void *vocab, int32_t n_vocab,
                           const llamad_sampling *sampling, const llamad_bias *bias, int32_t n_bias,
                           const char *breakers, int32_t n_breakers, int32_t can_be_ours) noexcept nogil:
    """A sampler without history, or NULL."""
    cdef Sampler *sampler = <Sampler *>calloc(1, sizeof(Sampler))
    cdef int32_t n_penalties = 0
    if sampler == NULL:
        return NULL
    sampler.table = table
    sampler.n_vocab = n_vocab
    sampler.sampling = sampling[0]
    if can_be_ours and _plan(sampler, &n_penalties):
        if _open_ours(sampler, bias, n_bias, n_penalties) == 0:
            return sampler
    else:
        sampler.chain = table.sampler_open(vocab, sampling, bias, n_bias, breakers, n_breakers)
        if sampler.chain != NULL:
            return sampler
    sampler_close(sampler)
    return NULL


cdef void sampler_close(Sampler *sampler) noexcept nogil:
    if sampler == NULL:
        return
    if sampler.chain != NULL:
        sampler.table.sampler_close(sampler.chain)
    free(sampler.bias)
    free(sampler.history.ring)
    free(sampler.history.counts)
    free(sampler)


cdef size_t sampler_scratch_bytes(int32_t n_vocab) noexcept nogil:
    return max(<size_t>n_vocab * sizeof(llamad_candidate), topk_scratch_bytes(n_vocab))


# --- history --------------------------------------------------------------------------------------------------

cdef int32_t sampler_history_wanted(const llamad_sampling *sampling) noexcept nogil:
    """How many of the prompt's last tokens can matter: penalties and DRY look back no further."""
    cdef int32_t n = 0
    if sampling.mirostat:
        return 0
    if _has_penalties(sampling):
        n = sampling.repeat_last_n
    if sampling.dry_multiplier != 0 and sampling.dry_penalty_last_n > n:
        n = sampling.dry_penalty_last_n
    return n


cdef void sampler_accept(Sampler *sampler, int32_t token) noexcept nogil:
    """The token is part of the text now."""
    cdef History *history = &sampler.history
    if sampler.chain != NULL:
        sampler.table.sampler_accept(sampler.chain, token)
        return
    if history.counts == NULL:
        return
    if history.n == history.n_max:
        history.counts[history.ring[history.at]] -= 1
    else:
        history.n += 1
    history.ring[history.at] = token
    history.counts[token] += 1
    history.at = (history.at + 1) % history.n_max


# --- picking --------------------------------------------------------------------------------------------------

cdef void _penalize(Sampler *sampler, float *logits) noexcept nogil:
    """Each token of the history once: a count is turned negative while it is done."""
    cdef History *history = &sampler.history
    cdef const llamad_sampling *s = &sampler.sampling
    cdef int32_t i, token, count
    for i in range(history.n):
        token = history.ring[i]
        count = history.counts[token]
        if count <= 0:
            continue
        history.counts[token] = -count
        if logits[token] <= 0:
            logits[token] *= s.repeat_penalty
        else:
            logits[token] /= s.repeat_penalty
        logits[token] -= <float>count * s.frequency_penalty + s.presence_penalty
    for i in range(history.n):
        token = history.ring[i]
        if history.counts[token] < 0:
            history.counts[token] = -history.counts[token]


cdef int32_t _pick_ours(Sampler *sampler, float *logits, void *scratch) noexcept nogil:
    cdef Candidates c
    cdef int32_t i
    cdef unsigned char kind
    c.table = sampler.table
    c.data = <llamad_candidate *>scratch
    for i in range(sampler.n_bias):
        logits[sampler.bias[i].token] += sampler.bias[i].bias
    if sampler.history.counts != NULL:
        _penalize(sampler, logits)
    if topk_select(logits, sampler.n_vocab, sampler.k, scratch) < 0:
        for i in range(sampler.n_vocab):
            c.data[i].id = i
            c.data[i].logit = logits[i]
        sampler.table.sort(c.data, sampler.n_vocab, sampler.k)
    c.n = sampler.k
    c.is_sorted = 1
    for i in range(sampler.n_after):
        kind = sampler.after[i]
        if kind == LLAMAD_SAMPLER_TOP_K:
            candidates_top_k(&c, sampler.sampling.top_k)
        elif kind == LLAMAD_SAMPLER_TOP_P:
            candidates_top_p(&c, &sampler.sampling)
        elif kind == LLAMAD_SAMPLER_MIN_P:
            candidates_min_p(&c, &sampler.sampling)
        elif kind == LLAMAD_SAMPLER_TYPICAL:
            candidates_typical(&c, &sampler.sampling)
        elif kind == LLAMAD_SAMPLER_XTC:
            candidates_xtc(&c, &sampler.sampling, &sampler.xtc_random)
        elif kind == LLAMAD_SAMPLER_TEMPERATURE:
            candidates_temperature(&c, &sampler.sampling)
    sampler.left = c.data
    sampler.n_left = c.n
    return candidates_draw(&c, &sampler.random)


cdef int32_t sampler_pick(Sampler *sampler, float *logits, void *scratch) noexcept nogil:
    """The next token, remembered as part of the history; negative on an error."""
    cdef int32_t token
    if sampler.chain != NULL:
        token = sampler.table.sampler_pick(sampler.chain, logits, sampler.n_vocab, scratch)
        sampler.left = <llamad_candidate *>scratch
        sampler.n_left = sampler.n_vocab
    else:
        token = _pick_ours(sampler, logits, scratch)
    if token >= 0:
        sampler_accept(sampler, token)
    return token


cdef void sampler_candidates(Sampler *sampler, const llamad_candidate **data, int32_t *n) noexcept nogil:
    """What the last pick drew from, with the final probabilities, most likely first."""
    cdef llamad_candidate *left = sampler.left
    cdef int32_t i
    cdef float largest
    cdef double total = 0
    if sampler.chain != NULL:
        i = 0
        while i < sampler.n_vocab and left[i].id >= 0:
            i += 1
        sampler.n_left = i
    sampler.table.sort(left, sampler.n_left, sampler.n_left)
    largest = left[0].logit
    for i in range(sampler.n_left):
        left[i].p = expf(left[i].logit - largest)
        total += left[i].p
    for i in range(sampler.n_left):
        left[i].p = <float>(left[i].p / total)
    data[0] = left
    n[0] = sampler.n_left
