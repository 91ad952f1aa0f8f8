# The contents of a step's batch: one token for each decoding slot, then prompt chunks up to the budget.
from libc.stdint cimport int32_t, int64_t

from llamad.base.function_table cimport llamad_batch
from llamad.engine.kv.slots cimport Slots
from llamad.engine.scheduler.plan cimport Plan

cdef int batch_init(Plan *plan, int32_t n_slots, int32_t batch_max, int32_t ubatch, int32_t tokens_max, int32_t can_mix,
                    int32_t has_device, int32_t can_separate) noexcept nogil
cdef void batch_free(Plan *plan) noexcept nogil
cdef void batch_fill(Plan *plan, Slots *slots) noexcept nogil
cdef void batch_learn(Plan *plan, int64_t decode_us, int64_t wait_us) noexcept nogil
cdef llamad_batch batch_part(const Plan *plan, int32_t begin, int32_t end) noexcept nogil
