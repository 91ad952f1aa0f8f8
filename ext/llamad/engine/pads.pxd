# Tokens that make pieces of prompts equally long.
from llamad.engine.plan cimport Plan
from llamad.engine.slots cimport Slots

cdef void pads_choose(Plan *plan, Slots *slots) noexcept nogil
cdef void pads_remove(const Plan *plan, Slots *slots) noexcept nogil
