# Owns: the count of cells that slots take in a cache that they share (a unified one). Runs on the engine thread.
#
# llama.h does not show cells, so this is an upper bound: llama.cpp never needs more than what is counted here. If it
# reports that there is no room anyway, decode_faults.pyx makes some.
#
# Cells that slots share (shared_cells.pyx) count once. A sliding window has a second, smaller cache. There a cell
# before its sequence's window is free, but only if no other sequence has it. So slots never share cells of the window
# (prefix/copying.pyx gives each a copy), and each slot takes as many as its window is long.
from libc.stdint cimport int32_t

from llamad.engine.costs.scheduler cimport SPARE_PART
from llamad.engine.kv.shared_cells cimport shared_with
from llamad.engine.kv.slots cimport SLOT_DECODING, SLOT_IDLE, SLOT_PREFILLING, Slot, Slots

cdef enum:
    CELLS_STEP = 256         # llama.cpp computes attention over multiples of this


cdef int32_t _held(const Slot *slot) noexcept nogil:
    return slot.n_tokens


cdef int32_t _held_busy(const Slot *slot) noexcept nogil:
    return slot.n_tokens if slot.state != SLOT_IDLE else 0


cdef int32_t _needed(const Slot *slot) noexcept nogil:
    """Return how many cells a running task holds or will need to prefill its prompt."""
    if slot.state == SLOT_DECODING:
        return slot.n_tokens
    return slot.n_prefill if slot.state == SLOT_PREFILLING else 0


cdef int32_t _count(const Slots *slots, int32_t (*of_slot)(const Slot *) noexcept nogil) noexcept nogil:
    """Return the sum over the slots. Each shared cell counts once, for the first of its slots."""
    cdef int32_t i, k, n, n_counted, n_all = 0
    for i in range(slots.n):
        n = of_slot(&slots.items[i])
        n_counted = 0
        for k in range(i if n else 0):
            if of_slot(&slots.items[k]):
                n_counted = max(n_counted, shared_with(&slots.shared, i, k))
        n_all += max(0, n - n_counted)
    return n_all


cdef int32_t _count_window(const Slots *slots, int32_t (*of_slot)(const Slot *) noexcept nogil) noexcept nogil:
    """Return the sum over the slots in the window's cache."""
    cdef int32_t i, n = 0
    for i in range(slots.n):
        n += min(of_slot(&slots.items[i]), slots.n_swa)
    return n


cdef int32_t cells_used(const Slots *slots) noexcept nogil:
    return _count(slots, _held)


cdef int32_t cells_busy(const Slots *slots) noexcept nogil:
    """Return the cells of slots that have a task; the prefixes of the others can be evicted."""
    return _count(slots, _held_busy)


cdef int32_t cells_wanted(const Slots *slots) noexcept nogil:
    """Return how many cells running tasks hold or will need to prefill their prompts."""
    return _count(slots, _needed)


cdef int32_t cells_spare(const Slots *slots) noexcept nogil:
    """Return how many cells must stay free for the next tokens of all running tasks when one more is admitted."""
    return slots.n_cells // SPARE_PART


cdef int cells_fit(const Slots *slots, int32_t n) noexcept nogil:
    """Return whether there is room for n more tokens beside everything that slots hold."""
    if slots.n_cells == 0:
        return 1
    if cells_used(slots) + n > slots.n_cells:
        return 0
    n = min(n, max(slots.n_swa, slots.n_swa_spare))
    return slots.n_window == 0 or _count_window(slots, _held) + n <= slots.n_window


cdef int cells_fit_running(const Slots *slots, int32_t n_more, int32_t n_prompt) noexcept nogil:
    """Return whether one more task can run beside the others, once all idle prefixes are evicted. It takes n_more
    cells, and its prompt is n_prompt long."""
    cdef int32_t n_step = min(n_prompt, slots.n_swa_spare)
    if slots.n_cells == 0:
        return 1
    if cells_wanted(slots) + n_more > slots.n_cells:
        return 0
    return slots.n_window == 0 or _count_window(slots, _needed) + min(n_prompt, slots.n_swa) + n_step <= slots.n_window


cdef int32_t cells_computed(const Slots *slots, int32_t n_tokens) noexcept nogil:
    """Return for how many cells llama.cpp computes attention if the longest sequence of a batch has this many
    tokens."""
    return min(slots.n_ctx, (n_tokens + CELLS_STEP - 1) // CELLS_STEP * CELLS_STEP)
