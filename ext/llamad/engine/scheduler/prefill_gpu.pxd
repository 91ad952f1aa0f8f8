# Decides how much is prefilled in a step on a GPU, and whether decoding slots wait for it.
from libc.stdint cimport int32_t, int64_t

from llamad.engine.scheduler.plan cimport Plan

cdef int32_t prefill_gpu_tokens(const Plan *plan, int32_t is_alone) noexcept nogil
cdef int prefill_gpu_goes_first(Plan *plan) noexcept nogil
cdef void prefill_gpu_learn(Plan *plan, int64_t decode_us) noexcept nogil
