# Padding: tokens that make prompt chunks equally long.
from libc.stdint cimport int32_t

from llamad.engine.kv.slots cimport Slots
from llamad.engine.scheduler.plan cimport Plan

cdef int padding_fits(const Plan *plan, const Slots *slots, int32_t n, int32_t n_longest) noexcept nogil
cdef void padding_choose(Plan *plan, Slots *slots) noexcept nogil
cdef void padding_remove(const Plan *plan, Slots *slots) noexcept nogil
