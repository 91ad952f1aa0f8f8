# Owns: which tokens were likely at each step, and how likely. probs_before and probs_after run on sampler threads
# around sampling (one task on one thread at a time), the rest on the engine thread. Never sorts the vocabulary or
# changes the row.
from libc.float cimport FLT_MAX
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memmove, memset

from llamad.engine.sampler.sampler cimport Sampler, sampler_candidates, sampler_scratch_bytes
from llamad.base.function_table cimport llamad_candidate
from llamad.engine.costs.sampler cimport TOPK_COLLECT_MAX
from llamad.engine.sampler.topk cimport topk_select
from llamad.protocol.messages cimport TokenProb

cdef extern from "llamad/engine/sampler/logprobs.h" nogil:
    double probs_log_sum(const float *row, int32_t n, float max) noexcept


cdef void probs_begin(Probs *probs, int32_t n_top, int32_t is_post) noexcept nogil:
    """Start a new task."""
    probs.n_top = n_top
    probs.is_post = is_post
    probs.n_tokens = probs.n_ahead = 0


cdef void probs_free(Probs *probs) noexcept nogil:
    free(probs.rows)
    probs.rows = NULL
    probs.n_rows_max = 0


cdef int probs_reserve(Probs *probs, int32_t n_more) noexcept nogil:
    """Make room for n_more tokens. Return 0, or -1 if memory ran out."""
    return probs_reserve_for(probs, probs.n_tokens + n_more)


cdef int probs_reserve_for(Probs *probs, int32_t n_tokens) noexcept nogil:
    """Make room for n_tokens in all. Return 0, or -1 if memory ran out."""
    cdef int64_t n = <int64_t>n_tokens * (1 + probs.n_top)
    cdef void *more
    if probs.n_top == 0 or n <= probs.n_rows_max:
        return 0
    more = realloc(probs.rows, <size_t>(2 * n) * sizeof(TokenProb))
    if more == NULL:
        return -1
    probs.rows = <TokenProb *>more
    probs.n_rows_max = 2 * n
    return 0


cdef inline TokenProb *_next(Probs *probs) noexcept nogil:
    """Return the rows of the token that is being sampled: itself, then the top."""
    return probs.rows + <int64_t>(probs.n_tokens + probs.n_ahead) * (1 + probs.n_top)


cdef int32_t _select(const float *row, int32_t n, int32_t k, llamad_candidate *out) noexcept nogil:
    """Select the k largest, largest first, from any row; fewer if it has fewer numbers. Return how many."""
    cdef int32_t i, j, n_found = 0
    for i in range(n):
        if not row[i] >= -INFINITY or (n_found == k and row[i] <= out[k - 1].logit):
            continue
        j = n_found if n_found < k else k - 1
        n_found = j + 1 if n_found < k else k
        while j > 0 and out[j - 1].logit < row[i]:
            out[j] = out[j - 1]
            j -= 1
        out[j].id = i
        out[j].logit = row[i]
    return n_found


cdef float _logprob(const Probs *probs, float logit) noexcept nogil:
    """Return the log probability; it is finite, because JSON has no infinity."""
    cdef double value = <double>logit - probs.log_sum
    return <float>value if value > -FLT_MAX else -FLT_MAX


cdef void probs_before(Probs *probs, const float *row, int32_t n_vocab, void *scratch) noexcept nogil:
    """Note the top of the model's own distribution, before anything changes the row."""
    cdef llamad_candidate *top = <llamad_candidate *>scratch
    cdef TokenProb *out
    cdef int32_t i, n
    if probs.n_top == 0 or probs.is_post:
        return
    n = topk_select(row, n_vocab, min(probs.n_top, n_vocab), top, <float *>(top + TOPK_COLLECT_MAX), 0, 0)
    if n < min(probs.n_top, n_vocab):  # equal logits (their order does not matter here), or too few above -inf
        n = _select(row, n_vocab, min(probs.n_top, n_vocab), top)
    probs.log_sum = probs_log_sum(row, n_vocab, top[0].logit) if n > 0 and top[0].logit > -INFINITY else 0
    out = _next(probs)
    out.id = n
    for i in range(n):
        out[1 + i].id = top[i].id
        out[1 + i].value = _logprob(probs, top[i].logit)


cdef void probs_after(Probs *probs, Sampler *sampler, const float *row, int32_t sampled) noexcept nogil:
    """Note the sampled token's own probability, and what the sampler left, if that is requested."""
    cdef llamad_candidate *left = NULL
    cdef TokenProb *out
    cdef int32_t i, n = 0, n_top = 0
    if probs.n_top == 0 or sampled < 0:
        return
    out = _next(probs)
    if not probs.is_post:
        out.value = _logprob(probs, row[sampled])
        return
    sampler_candidates(sampler, &left, &n)
    out.value = 1  # like llama-server if the token is not among them
    for i in range(n):
        if left[i].id == sampled:
            out.value = left[i].p
            break
    for i in range(min(n, probs.n_top)):
        if left[i].p == 0:
            break
        out[1 + i].id = left[i].id
        out[1 + i].value = left[i].p
        n_top += 1
    out.id = n_top


cdef void probs_of(Probs *probs, const float *row, int32_t n_vocab, int32_t token, void *scratch) noexcept nogil:
    """Note the top and the probability of a token that was not sampled."""
    probs_before(probs, row, n_vocab, scratch)
    probs_after(probs, NULL, row, token)


cdef void probs_sent(Probs *probs, int32_t n_tokens) noexcept nogil:
    """Remove the rows of the first n_tokens, which have been sent."""
    cdef int64_t stride = 1 + probs.n_top
    if probs.n_top == 0:
        return
    probs.n_tokens -= n_tokens
    memmove(probs.rows, probs.rows + n_tokens * stride,
            <size_t>((probs.n_tokens + probs.n_ahead) * stride) * sizeof(TokenProb))


def top_logprobs(float[::1] row, sampled: int, n_top: int) -> tuple[float, list[tuple[int, float]]]:
    """Return what is reported with one token, without an engine, for tests and timing."""
    cdef Probs probs
    cdef int32_t token = sampled, n_vocab = <int32_t>row.shape[0], k
    cdef void *scratch = malloc(sampler_scratch_bytes(n_vocab))
    memset(&probs, 0, sizeof(Probs))
    probs_begin(&probs, n_top, 0)
    if scratch == NULL or probs_reserve(&probs, 1) < 0:
        raise MemoryError()
    with nogil:
        probs_before(&probs, &row[0], n_vocab, scratch)
        probs_after(&probs, NULL, &row[0], token)
    report = probs.rows[0].value, [(probs.rows[1 + k].id, probs.rows[1 + k].value) for k in range(probs.rows[0].id)]
    probs_free(&probs)
    free(scratch)
    return report
