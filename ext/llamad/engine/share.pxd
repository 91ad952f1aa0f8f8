# How a slot gets the beginning of a prompt without reading it: its own, or another slot's, busy or not.
from llamad.engine.slots cimport Slot, Slots
from llamad.engine.tasks cimport Task

cdef void share_prepare(Slots *slots, Slot *slot, const Task *task) noexcept nogil
