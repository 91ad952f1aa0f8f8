# Reuses chunks of a slot's old prompt that are at an earlier place in the new one.
from libc.stdint cimport int32_t

from llamad.engine.kv.slots cimport Slot, Slots
from llamad.engine.kv.task_queue cimport Task

cdef int32_t reuse_reaches(Slots *slots, const Slot *slot, const Task *task) noexcept nogil
cdef int32_t reuse_chunks(Slots *slots, Slot *slot, const Task *task) noexcept nogil
