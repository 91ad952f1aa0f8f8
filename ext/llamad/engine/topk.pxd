# The k largest logits of a row, sorted.
from libc.stdint cimport int32_t

from llamad.engine.table cimport llamad_candidate

cdef enum:
    TOPK_MAX = 1024          # the largest k this is made for
    TOPK_COLLECT_MAX = 4096

cdef size_t topk_scratch_bytes(int32_t n_vocab) noexcept nogil
cdef int32_t topk_select(const float *row, int32_t n, int32_t k, void *scratch) noexcept nogil
