# Owns: the order in which llama.cpp leaves many candidates, including equal ones. Runs on sampler threads.
#
# The order within a bucket depends only on its own elements in their original order. So the head of a vocabulary can be
# sorted as llama.cpp would sort it without looking at the tail.
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memset

from llamad.base.function_table cimport llamad_candidate, llamad_table

cdef extern from "llamad/engine/sampler/llama_sort.h" nogil:
    int32_t buckets_place(float logit) noexcept


cdef int32_t buckets_down_to(const int32_t *counts, int32_t k) noexcept nogil:
    """Return the bucket down to which there are k elements, counted from the top."""
    cdef int32_t n = 0, j = BUCKETS_N - 1
    while j > 0:
        n += counts[j]
        if n >= k:
            break
        j -= 1
    return j


cdef int32_t buckets_collect(const float *row, const uint8_t *places, int32_t n, const int32_t *counts, int32_t first,
                             int32_t last, llamad_candidate *out) noexcept nogil:
    """Collect the elements of the buckets first, first - 1, ..., last, bucket by bucket. Return how many there are."""
    cdef int32_t at[BUCKETS_N]
    cdef int32_t i, j, total = 0
    for j in range(first, last - 1, -1):
        at[j] = total
        total += counts[j]
    for i in range(n):
        j = places[i]
        if j >= last and j <= first:
            out[at[j]].id = i
            out[at[j]].logit = row[i] if row[i] == row[i] else -INFINITY  # a NaN would break the sorts
            at[j] += 1
    return total


cdef void buckets_sort_each(const llamad_table *table, llamad_candidate *data, const int32_t *counts, int32_t last,
                            int32_t k) noexcept nogil:
    """Sort the buckets that follow each other in `data`; the last one only as far as k requires."""
    cdef int32_t j, n_done = 0
    for j in range(BUCKETS_N - 1, last, -1):
        table.sort(data + n_done, counts[j])
        n_done += counts[j]
    table.sort_front(data + n_done, counts[last], k - n_done)


cdef void buckets_sort(const llamad_table *table, llamad_candidate *data, int32_t n, int32_t k, llamad_candidate *spare,
                       uint8_t *places) noexcept nogil:
    """Write the k largest, sorted, to the front of `spare`, which has room for all; `data` is not changed."""
    cdef int32_t counts[BUCKETS_N]
    cdef int32_t at[BUCKETS_N]
    cdef int32_t i, j, last, total = 0
    memset(counts, 0, sizeof(counts))
    for i in range(n):
        places[i] = <uint8_t>buckets_place(data[i].logit)
        counts[places[i]] += 1
    last = buckets_down_to(counts, k)
    for j in range(BUCKETS_N - 1, last - 1, -1):
        at[j] = total
        total += counts[j]
    for i in range(n):
        j = places[i]
        if j >= last:
            spare[at[j]] = data[i]
            at[j] += 1
    buckets_sort_each(table, spare, counts, last, k)
