# Owns: the turns of adapter sets. Runs on the engine thread, before each step. A decode computes with one set, and
# another set makes llama.cpp rebuild its graph, which takes as long as several tokens. So tasks with the same set
# decode together, and a turn is as long as the others can wait for theirs, and several times as long as a change.
from libc.stdint cimport int32_t, int64_t

from llamad.base.system cimport load_int
from llamad.engine.costs.scheduler cimport ADAPTER_CHANGE_US_MAX, ADAPTER_GAP_US, ADAPTER_TURN_FACTOR, RARE_LEARN_RATE
from llamad.protocol.adapter_span cimport span_at
from llamad.engine.kv.slots cimport SLOT_DECODING, SLOT_PREFILLING, Slot, Slots


cdef int _has_work(const Slot *slot) noexcept nogil:
    if slot.state == SLOT_PREFILLING:
        return slot.restored_entry == 0
    return slot.state == SLOT_DECODING and not slot.task.is_paused and not load_int(&slot.deferral)


cdef int _is_first(const Slots *slots, int32_t i) noexcept nogil:
    """Return whether no slot before it needs the same set."""
    cdef int32_t k
    for k in range(i):
        if _has_work(&slots.items[k]) and (
                span_at(&slots.items[k].adapters, slots.items[k].n_tokens)
                == span_at(&slots.items[i].adapters, slots.items[i].n_tokens)):
            return 0
    return 1


cdef int32_t _n_waiting(const AdapterTurns *turns, const Slots *slots) noexcept nogil:
    """Return how many other sets are needed."""
    cdef const Slot *slot
    cdef int32_t i, n = 0
    for i in range(slots.n):
        slot = &slots.items[i]
        if _has_work(slot) and span_at(&slot.adapters, slot.n_tokens) != turns.set and _is_first(slots, i):
            n += 1
    return n


cdef void _look(AdapterTurns *turns, Slots *slots, Slot **oldest) noexcept nogil:
    """Find a slot that needs the current set, and the one that has waited longest for another."""
    cdef Slot *slot
    cdef int32_t i
    turns.slot = oldest[0] = NULL
    for i in range(slots.n):
        slot = &slots.items[i]
        if not _has_work(slot):
            continue
        if span_at(&slot.adapters, slot.n_tokens) == turns.set:
            turns.slot = slot
        elif oldest[0] == NULL or slot.t_turn_us < oldest[0].t_turn_us:
            oldest[0] = slot


cdef void turns_learn(AdapterTurns *turns, double cost_us) noexcept nogil:
    """Learn what the change of adapters in this step cost."""
    cdef double cost = min(max(cost_us, 1.0), <double>ADAPTER_CHANGE_US_MAX)
    turns.change_us += RARE_LEARN_RATE * (cost - turns.change_us) if turns.change_us > 0 else cost


cdef double _turn_us(const AdapterTurns *turns, const Slots *slots) noexcept nogil:
    return max(<double>ADAPTER_GAP_US / _n_waiting(turns, slots), ADAPTER_TURN_FACTOR * turns.change_us)


cdef void turns_choose(AdapterTurns *turns, Slots *slots, int64_t now) noexcept nogil:
    """Choose the set for this step. Slots that need another one sit it out (slot.sits_out), and those that are still
    getting a part of their prompt from the prompt cache."""
    cdef Slot *oldest
    cdef Slot *slot
    cdef int32_t i
    turns.is_new = 0
    _look(turns, slots, &oldest)
    if oldest != NULL and (turns.slot == NULL or now - turns.t_begin_us >= _turn_us(turns, slots)):
        turns.set = span_at(&oldest.adapters, oldest.n_tokens)
        turns.slot = oldest
        turns.t_begin_us = now
        turns.is_new = 1
    for i in range(slots.n):
        slot = &slots.items[i]
        slot.sits_out = slot.restored_entry != 0 or (
            oldest != NULL and span_at(&slot.adapters, slot.n_tokens) != turns.set)
        if not slot.sits_out:
            slot.t_turn_us = now
