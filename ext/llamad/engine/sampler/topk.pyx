# Owns: choosing and sorting the few candidates of a row. Runs on sampler threads.
from libc.float cimport FLT_MAX
from libc.stdint cimport int32_t

from llamad.base.function_table cimport llamad_candidate
from llamad.engine.costs.sampler cimport INSERTION_SORT_MAX, TOPK_COLLECT_MAX, TOPK_MAX

cdef enum:
    PARTIAL_SORT_MAX = 128   # llama.cpp's limit

cdef extern from "llamad/engine/sampler/topk.h" nogil:
    int32_t topk_group_maxima(const float *row, int32_t n, float *out) noexcept
    float topk_threshold(const float *maxima, int32_t n, int32_t k, float *heap) noexcept
    float topk_near(const float *row, int32_t n, int32_t k, float largest) noexcept
    float topk_largest(const float *maxima, int32_t n) noexcept
    int32_t topk_fold(const float *maxima, int32_t n, float *out) noexcept
    ctypedef struct topk_item:
        pass
    int32_t topk_collect_all(const float *row, int32_t n, const float *maxima, float least, topk_item *out,
                             int32_t n_max) noexcept
    void topk_in_order(const float *row, int32_t n, int32_t k, const float *maxima, topk_item *out) noexcept


cdef int32_t topk_n_maxima(int32_t n) noexcept nogil:
    """Return how many floats the functions below need for their maxima, and for those of several pieces or the heap
    after them."""
    cdef int32_t n_groups = (n // TOPK_PIECE + 1) * TOPK_LANES
    return n_groups + max(n_groups // TOPK_FOLD + 1, <int32_t>TOPK_MAX)


cdef float _largest(const float *row, int32_t n, const float *maxima, int32_t n_groups) noexcept nogil:
    cdef float largest = topk_largest(maxima, n_groups)
    cdef int32_t i
    for i in range(n // TOPK_PIECE * TOPK_PIECE, n):
        largest = row[i] if row[i] > largest else largest
    return largest


cdef float topk_maxima(const float *row, int32_t n, float *maxima, int has_maxima) noexcept nogil:
    """Compute the groups' maxima, unless they are there. Return the largest element."""
    return _largest(row, n, maxima, n // TOPK_PIECE * TOPK_LANES if has_maxima else topk_group_maxima(row, n, maxima))


cdef int32_t topk_collect(const float *row, int32_t n, const float *maxima, float least,
                          llamad_candidate *out) noexcept nogil:
    """Collect every element that reaches the threshold, in row order. Return how many. `out` has room for all."""
    return topk_collect_all(row, n, maxima, least, <topk_item *>out, n)


cdef float _threshold(float *maxima, int32_t n_groups, int32_t k) noexcept nogil:
    """Return a value that at least k of the maxima reach, and not many more. There must be k of them."""
    cdef float *folded = maxima + n_groups
    cdef float least = -FLT_MAX
    cdef int32_t n_folded
    if n_groups // TOPK_FOLD >= 2 * TOPK_LANES + k:
        n_folded = topk_fold(maxima, n_groups, folded)
        least = topk_near(folded, n_folded, k, topk_largest(folded, n_folded))
    return least if least > -FLT_MAX else topk_threshold(maxima, n_groups, k, maxima + n_groups)


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
    """Sort, largest first: by insertion for the usual few, with a heap for many."""
    cdef llamad_candidate value
    cdef int32_t i, j
    if n <= INSERTION_SORT_MAX:
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


cdef int _has_nan(const float *row, int32_t n) noexcept nogil:
    cdef int32_t i
    for i in range(n):
        if row[i] != row[i]:
            return 1
    return 0


cdef int32_t _select_in_order(const float *row, int32_t n, int32_t k, llamad_candidate *out,
                              const float *maxima) noexcept nogil:
    """Do topk_select() with llama.cpp's own heap: for a row of hardly more than k elements, or nearly all equal
    ones."""
    topk_in_order(row, n, k, maxima, <topk_item *>out)
    while k > 0 and not out[k - 1].logit >= -FLT_MAX:
        k -= 1
    return k


cdef void _leave_open(llamad_candidate *out, int32_t k, int32_t n_found) noexcept nogil:
    """Replace the ids of equal ones among the first k by their places."""
    cdef int32_t i
    for i in range(min(k, n_found)):
        if (i > 0 and out[i].logit == out[i - 1].logit) or (i + 1 < n_found and out[i].logit == out[i + 1].logit):
            out[i].id = TOPK_OPEN - i


cdef int32_t topk_resolve(const float *row, int32_t n, int32_t k, const float *maxima, llamad_candidate *scratch,
                          int32_t open) noexcept nogil:
    """Return the token that llama.cpp has at a place that topk_select() left open. `scratch` has room for k."""
    topk_in_order(row, n, k, maxima, <topk_item *>scratch)
    return scratch[TOPK_OPEN - open].id


cdef int32_t topk_select(const float *row, int32_t n, int32_t k, llamad_candidate *out, float *maxima,
                         int has_maxima, int leaves_open) noexcept nogil:
    """Make the first k of `out` the k largest, sorted. Return k, or fewer if fewer are above -inf.

    Finding the order of equal logits takes longer than all else (26 of 48 µs beside an H200), and most drawn tokens have
    no equals. So with leaves_open, the ids of equal ones are left open (topk_resolve()).

    Return -1 if too many reach the threshold, or if llama.cpp would not sort with a heap and equal logits leave the
    order open: then the caller must sort. `out` has room for TOPK_COLLECT_MAX."""
    cdef int32_t n_groups = n // TOPK_PIECE * TOPK_LANES if has_maxima else topk_group_maxima(row, n, maxima)
    cdef int32_t i, n_found
    cdef float least
    if n_groups >= k:
        least = _threshold(maxima, n_groups, k)
    else:
        # There are too few groups for a threshold; without one, the whole row would be sorted.
        least = topk_near(row, n, k, _largest(row, n, maxima, n_groups))
        if least == -FLT_MAX and k <= PARTIAL_SORT_MAX and not _has_nan(row, k):
            return _select_in_order(row, n, k, out, maxima)
    least = least if least > -FLT_MAX else -FLT_MAX
    n_found = topk_collect_all(row, n, maxima, least, <topk_item *>out, TOPK_COLLECT_MAX)
    if n_found < 0:
        return -1
    _sort(out, n_found)
    for i in range(1, min(k + 1, n_found)):
        if out[i].logit == out[i - 1].logit:
            if k > PARTIAL_SORT_MAX or _has_nan(row, k):
                return -1
            if not leaves_open:
                topk_in_order(row, n, k, maxima, <topk_item *>out)
            else:
                _leave_open(out, k, n_found)
            break
    return min(k, n_found)
