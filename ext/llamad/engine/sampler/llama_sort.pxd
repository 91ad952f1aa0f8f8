# Sorts as llama.cpp sorts many candidates: by bucket, then each bucket separately.
from libc.stdint cimport int32_t, uint8_t

from llamad.base.function_table cimport llamad_candidate, llamad_table

cdef extern from "llamad/engine/sampler/llama_sort.h" nogil:
    enum:
        BUCKETS_N
    void buckets_places(const float *row, int32_t n, uint8_t *places, int32_t *counts) noexcept
    void buckets_masses(const float *p, const uint8_t *places, int32_t n, double *masses) noexcept

cdef int32_t buckets_down_to(const int32_t *counts, int32_t k) noexcept nogil
cdef int32_t buckets_collect(const float *row, const uint8_t *places, int32_t n, const int32_t *counts, int32_t first,
                             int32_t last, llamad_candidate *out) noexcept nogil
cdef void buckets_sort_each(const llamad_table *table, llamad_candidate *data, const int32_t *counts, int32_t last,
                            int32_t k) noexcept nogil
cdef void buckets_sort(const llamad_table *table, llamad_candidate *data, int32_t n, int32_t k, llamad_candidate *spare,
                       uint8_t *places) noexcept nogil
