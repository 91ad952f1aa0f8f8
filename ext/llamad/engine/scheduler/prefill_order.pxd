# The order in which prompts are prefilled. plan.pxd holds it.
from libc.stdint cimport int32_t, int64_t, uint64_t

from llamad.engine.kv.slots cimport Slot, Slots

cdef enum:
    CLIENTS_MAX = 64         # more clients at a time share an entry

ctypedef struct ClientTurn:
    uint64_t client
    int64_t n_read           # its prompt tokens so far; a client that was away starts at the least of the others
    int32_t is_here          # it has a prompt to prefill
    int32_t was_here         # the same in the step before

ctypedef struct PrefillOrder:
    ClientTurn clients[CLIENTS_MAX]
    int32_t n_clients

cdef void order_begin(PrefillOrder *order, Slots *slots) noexcept nogil
cdef Slot *order_next(const PrefillOrder *order, Slots *slots) noexcept nogil
cdef void order_count(PrefillOrder *order, const Slot *slot, int32_t n_tokens) noexcept nogil
