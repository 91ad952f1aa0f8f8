# Slots that get a token only for the shape of the batch.
from libc.stdint cimport int32_t

from llamad.engine.kv.slots cimport Slots
from llamad.engine.scheduler.plan cimport Plan

cdef int32_t fillers_bound(const Plan *plan, const Slots *slots, int32_t first, int32_t last, int32_t n) noexcept nogil
cdef void fillers_choose(Plan *plan, Slots *slots) noexcept nogil
cdef void fillers_remove(const Plan *plan, Slots *slots) noexcept nogil
