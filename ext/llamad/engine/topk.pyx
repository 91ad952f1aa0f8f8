# Owns: choosing and sorting the few candidates of a row. Runs on sampler threads.
from libc.math cimport INFINITY
from libc.stdint cimport int32_t

from llamad.engine.table cimport llamad_candidate

cdef extern from "topk.h" nogil:
    enum:
        TOPK_LANES
        TOPK_GROUP
        TOPK_PIECE
    int32_t topk_group_maxima(const float *row, int32_t n, float *out) noexcept
    float topk_threshold(const float *maxima, int32_t n, int32_t k, float *heap) noexcept


cdef size_t topk_scratch_bytes(int32_t n_vocab) noexcept nogil:
    """Candidates, then the groups' maxima, then the heap."""
    cdef size_t n_groups = <size_t>(n_vocab // TOPK_PIECE + 1) * TOPK_LANES
    return TOPK_COLLECT_MAX * sizeof(llamad_candidate) + (n_groups + TOPK_MAX) * sizeof(float)


cdef int _collect(const float *row, int32_t at, int32_t end, int32_t stride, float least, llamad_candidate *out,
                  int32_t *n) noexcept nogil:
    """Adds every element of a group that reaches the threshold; -1 when there are too many."""
    while at < end:
        if row[at] >= least:
            if n[0] == TOPK_COLLECT_MAX:
                return -1
            out[n[0]].id = at
            out[n[0]].logit = row[at]
            n[0] += 1
        at += stride
    return 0


cdef void _sift(llamad_candidate *data, int32_t n, int32_t i) noexcept nogil:
    cdef llamad_candidate value = data[i]
    cdef int32_t child
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and data[child + 1].logit < data[child].logit:
            child += 1
        if not data[child].logit < value.logit:
            break
        data[i] = data[child]
        i = child
    data[i] = value


cdef void _sort(llamad_candidate *data, int32_t n) noexcept nogil:
    """Largest first. Insertion for the usual few, a heap for many."""
    cdef llamad_candidate value
    cdef int32_t i, j
    if n <= 96:
        for i in range(1, n):
            value = data[i]
            j = i
            while j > 0 and data[j - 1].logit < value.logit:
                data[j] = data[j - 1]
                j -= 1
            data[j] = value
        return
    for i in range(n // 2 - 1, -1, -1):
        _sift(data, n, i)
    for i in range(n - 1, 0, -1):  # the smallest goes to the end, so the front keeps the largest
        value = data[0]
        data[0] = data[i]
        data[i] = value
        _sift(data, i, 0)


cdef int32_t topk_select(const float *row, int32_t n, int32_t k, void *scratch) noexcept nogil:
    """The first k of `scratch` become the k largest, sorted; returns k.

    -1 where equal logits among them leave their order open, or too many reach the threshold: the caller then
    asks for the order that llama.cpp's own sort leaves."""
    cdef llamad_candidate *out = <llamad_candidate *>scratch
    cdef float *maxima = <float *>(out + TOPK_COLLECT_MAX)
    cdef int32_t n_groups = topk_group_maxima(row, n, maxima)
    cdef float least = topk_threshold(maxima, n_groups, k, maxima + n_groups)
    cdef int32_t i, piece, n_found = 0, n_whole = n // TOPK_PIECE * TOPK_PIECE
    for i in range(n_groups):
        if maxima[i] >= least:
            piece = i // TOPK_LANES * TOPK_PIECE
            if _collect(row, piece + i % TOPK_LANES, piece + TOPK_PIECE, TOPK_LANES, least, out, &n_found) < 0:
                return -1
    if _collect(row, n_whole, n, 1, least, out, &n_found) < 0 or n_found < k:
        return -1
    _sort(out, n_found)
    for i in range(1, k):
        if out[i].logit == out[i - 1].logit:
            return -1
    return k
