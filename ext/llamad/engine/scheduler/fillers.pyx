# Owns: fillers. These are slots with nothing to decode that get a token anyway, which is removed after the decode. Runs
# on the engine thread.
#
# If each slot has its own KV stream, llama.cpp makes a graph for every run of adjacent slots in the batch, and each
# graph reads all weights again. So gaps between decoding slots are filled. Also, a GPU runs a graph much faster once it
# has seen it twice in the same shape (it is captured and launched as one). So the number of streams is rounded up, and
# kept for some steps when it falls, so that one stream more or less does not change the shape.
from libc.stdint cimport int32_t

from llamad.engine.costs.scheduler cimport EXACT_STREAMS_MAX, FILL_GAP_MAX, SHAPE_KEEP_STEPS
from llamad.engine.kv.cells cimport cells_computed
from llamad.engine.kv.slots cimport Slot, Slots
from llamad.engine.scheduler.plan cimport Plan, plan_has_device, plan_has_media, plan_has_output


cdef int32_t _cells(const Slots *slots, const Plan *plan) noexcept nogil:
    """Return how many cells the batch computes anyway for each of its slots."""
    cdef int32_t i, n = 0
    for i in range(slots.n):
        if plan_has_output(plan, &slots.items[i]):
            n = max(n, slots.items[i].n_tokens + slots.items[i].n_planned)
    return cells_computed(slots, n)


cdef int _can_fill(const Plan *plan, const Slots *slots, int32_t first, int32_t end, int32_t n_cells) noexcept nogil:
    cdef int32_t i, n
    for i in range(first, end):
        n = slots.items[i].n_tokens + slots.items[i].n_planned + plan.n_draft
        if n >= n_cells or plan_has_media(plan, &slots.items[i]):
            return 0
    return 1


cdef void _fill(Plan *plan, Slots *slots, int32_t first, int32_t end) noexcept nogil:
    cdef int32_t i
    for i in range(first, end):
        slots.items[i].is_filler = 1
    plan.n_fillers += end - first


cdef int32_t _rounded(int32_t n) noexcept nogil:
    """Return the number of streams, rounded up."""
    cdef int32_t step = 1
    if n > EXACT_STREAMS_MAX:
        step = 4 if n <= 32 else 8 if n <= 64 else 16
    return (n + step - 1) // step * step


cdef int32_t _width(Plan *plan, int32_t n) noexcept nogil:
    """Return how many streams the batch should have if n are needed."""
    cdef int32_t width = _rounded(n)
    if n > EXACT_STREAMS_MAX and width < plan.width <= width + plan.width // 4 and plan.n_kept < SHAPE_KEEP_STEPS:
        plan.n_kept += 1
        return plan.width
    plan.width = width
    plan.n_kept = 0
    return width


cdef int32_t fillers_bound(const Plan *plan, const Slots *slots, int32_t first, int32_t last, int32_t n) noexcept nogil:
    """Return how many slots at most a step has with fillers, if it decodes n slots, the first and the last of which are
    given."""
    if not slots.can_fill or not plan_has_device(plan):
        return n
    return min(slots.n, max(plan.width, _rounded(last - first + 1)))


cdef void fillers_choose(Plan *plan, Slots *slots) noexcept nogil:
    cdef int32_t i, first = -1, last = -1, n_runs = 0, n_more, n_cells
    plan.n_fillers = 0
    for i in range(slots.n):
        slots.items[i].is_filler = 0
    if not slots.can_fill or not plan_has_device(plan) or (plan.n_prefill_tokens and not plan.is_separate):
        return
    n_cells = _cells(slots, plan)
    for i in range(slots.n):
        if not plan_has_output(plan, &slots.items[i]):
            continue
        if last >= 0 and i - last <= FILL_GAP_MAX + 1 and _can_fill(plan, slots, last + 1, i, n_cells):
            _fill(plan, slots, last + 1, i)
        else:
            n_runs += 1
            first = i
        last = i
    if n_runs != 1 or not plan.has_device:
        return
    n_more = _width(plan, last - first + 1) - (last - first + 1)
    while n_more > 0 and last + 1 < slots.n and _can_fill(plan, slots, last + 1, last + 2, n_cells):
        _fill(plan, slots, last + 1, last + 2)
        last += 1
        n_more -= 1
    while n_more > 0 and first > 0 and _can_fill(plan, slots, first - 1, first, n_cells):
        _fill(plan, slots, first - 1, first)
        first -= 1
        n_more -= 1


cdef void fillers_remove(const Plan *plan, Slots *slots) noexcept nogil:
    """Remove the fillers' tokens. Call after the decode, when the slots are updated."""
    cdef Slot *slot
    cdef int32_t i
    if plan.n_fillers == 0:
        return
    for i in range(slots.n):
        slot = &slots.items[i]
        if slot.is_filler:
            slots.table.seq_rm(slots.ctx, slot.id, slot.n_pos, -1)
