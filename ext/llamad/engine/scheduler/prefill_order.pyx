# Owns: the order in which prompts are prefilled. Runs on the engine thread, once a step.
#
# Clients take turns, counted in tokens, so that the long prompts of one client delay its own requests and not those of
# others. The prompts of one client are prefilled in the order of their arrival: finishing one prompt early is better
# than finishing all of them late.
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint64_t

from llamad.engine.kv.slots cimport SLOT_PREFILLING, Slot, Slots


cdef int32_t _entry(PrefillOrder *order, uint64_t client) noexcept nogil:
    """Return the index of a client's entry; a new client takes that of one who is away."""
    cdef ClientTurn *turn
    cdef int32_t i, k = -1
    for i in range(order.n_clients):
        if order.clients[i].client == client:
            return i
    if order.n_clients < CLIENTS_MAX:
        k = order.n_clients
        order.n_clients += 1
    else:
        for i in range(CLIENTS_MAX):
            if not order.clients[i].is_here and not order.clients[i].was_here:
                k = i
        if k < 0:
            return <int32_t>(client % CLIENTS_MAX)
    turn = &order.clients[k]
    turn.client = client
    turn.n_read = 0
    turn.is_here = turn.was_here = 0
    return k


cdef void order_begin(PrefillOrder *order, Slots *slots) noexcept nogil:
    """Find the clients whose prompts are to be prefilled. Call it before the first order_next() of a step."""
    cdef ClientTurn *turn
    cdef Slot *slot
    cdef int32_t i
    cdef int64_t least = INT64_MAX
    for i in range(order.n_clients):
        order.clients[i].was_here = order.clients[i].is_here
        order.clients[i].is_here = 0
    for i in range(slots.n):
        slot = &slots.items[i]
        slot.is_ordered = 0
        if slot.state == SLOT_PREFILLING:
            slot.i_client = _entry(order, slot.task.command.client)
            turn = &order.clients[slot.i_client]
            turn.is_here = 1
            if turn.was_here:
                least = min(least, turn.n_read)
    if least == INT64_MAX:
        return
    for i in range(order.n_clients):
        turn = &order.clients[i]
        if turn.is_here and not turn.was_here:
            turn.n_read = max(turn.n_read, least)


cdef Slot *order_next(const PrefillOrder *order, Slots *slots) noexcept nogil:
    """Return the next slot to prefill in this step, or NULL after the last one."""
    cdef Slot *best = NULL
    cdef Slot *slot
    cdef int32_t i
    cdef int64_t n_read, n_least = 0
    for i in range(slots.n):
        slot = &slots.items[i]
        if slot.state != SLOT_PREFILLING or slot.sits_out or slot.is_ordered:
            continue
        n_read = order.clients[slot.i_client].n_read
        if (best == NULL or n_read < n_least
                or (n_read == n_least and slot.task.command.id < best.task.command.id)):
            best = slot
            n_least = n_read
    if best != NULL:
        best.is_ordered = 1
    return best


cdef void order_count(PrefillOrder *order, const Slot *slot, int32_t n_tokens) noexcept nogil:
    """Count prompt tokens that this step prefills for the slot's client."""
    order.clients[slot.i_client].n_read += n_tokens
