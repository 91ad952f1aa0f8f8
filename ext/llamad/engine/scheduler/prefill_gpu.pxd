# How much is read where a device computes, and who waits for it.
from libc.stdint cimport int32_t, int64_t

from llamad.engine.scheduler.plan cimport Plan

cdef enum:
    TOKENS_MIN = 128         # the least that is read beside writers

cdef int32_t beside_tokens(const Plan *plan, int32_t is_alone) noexcept nogil
cdef int beside_is_readers(Plan *plan) noexcept nogil
cdef void beside_learn(Plan *plan, int64_t decode_us) noexcept nogil
