# Tokens that make pieces of prompts equally long.
from libc.stdint cimport int32_t

from llamad.engine.scheduler.plan cimport Plan
from llamad.engine.kv.slots cimport Slots

cdef int pads_fit(const Plan *plan, const Slots *slots, int32_t n, int32_t n_longest) noexcept nogil
cdef void pads_choose(Plan *plan, Slots *slots) noexcept nogil
cdef void pads_remove(const Plan *plan, Slots *slots) noexcept nogil
