# Slots that get a token for nothing but the shape of the batch.
from llamad.engine.scheduler.plan cimport Plan
from llamad.engine.kv.slots cimport Slots

cdef void fillers_choose(Plan *plan, Slots *slots) noexcept nogil
cdef void fillers_remove(const Plan *plan, Slots *slots) noexcept nogil
