# Slots that get a token only for the shape of the batch.
from llamad.engine.kv.slots cimport Slots
from llamad.engine.scheduler.plan cimport Plan

cdef void fillers_choose(Plan *plan, Slots *slots) noexcept nogil
cdef void fillers_remove(const Plan *plan, Slots *slots) noexcept nogil
