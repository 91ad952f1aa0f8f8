# Owns: padding. These are tokens after a step's prompt chunks, which are removed right after their decode. Runs on the
# engine thread.
#
# If each slot has its own KV stream, llama.cpp computes several prompts in one graph only up to the length of the
# shortest: the rest of the longer ones is another graph, and so on, and prompts in slots that are not adjacent always
# have separate graphs. On a GPU, a graph costs as much as some hundred tokens, and nearly all of that is the host's
# work. So chunks are padded to equal lengths if that is cheaper, and slots between them join. Tokens after a prompt
# cannot change its logits.
from libc.stdint cimport INT32_MAX, int32_t

from llamad.engine.costs.scheduler cimport (
    CELLS_PER_TOKEN, GRAPH_TOKENS_MAX, GRAPH_TOKENS_MIN, GRAPH_TOKENS_UNKNOWN, GRAPH_US, PADDING_UNIT_COARSE,
    PADDING_UNIT_FINE,
)
from llamad.engine.kv.cells cimport cells_computed
from llamad.engine.kv.slots cimport SLOT_PREFILLING, Slot
from llamad.engine.scheduler.plan cimport plan_has_media

cdef enum:
    GRAPHS_MAX = 64          # the most that are counted

# Ways to pad.
cdef enum Way:
    WAY_EQUAL_JOINED = 0     # all equally long, including slots between them
    WAY_EQUAL = 1
    WAY_COARSE = 2           # each to a multiple of a large unit
    WAY_FINE = 3
    WAY_NONE = 4


cdef int32_t _graph_tokens(const Plan *plan) noexcept nogil:
    """Return the cost of a graph, in tokens."""
    if plan.best_token_us <= 0:
        return GRAPH_TOKENS_UNKNOWN
    return <int32_t>max(<double>GRAPH_TOKENS_MIN,
                        min(<double>GRAPH_TOKENS_MAX, max(<double>GRAPH_US, plan.decode_step_us) / plan.best_token_us))


cdef int32_t _count_graphs(Slots *slots, int32_t ubatch) noexcept nogil:
    """Return how many graphs llama.cpp makes of the slots' n_left tokens. Overwrites n_left."""
    cdef int32_t n = 0, first, end, least, i
    while n < GRAPHS_MAX:
        first = 0
        while first < slots.n and slots.items[first].n_left == 0:
            first += 1
        if first == slots.n:
            break
        least = INT32_MAX
        end = first
        while end < slots.n and slots.items[end].n_left:
            least = min(least, slots.items[end].n_left)
            end += 1
        least = min(least, max(1, ubatch // (end - first)))
        for i in range(first, end):
            slots.items[i].n_left -= least
        n += 1
    return n


ctypedef struct Chunks:
    int32_t first            # the first and the last slot with a chunk
    int32_t last
    int32_t n_longest
    int32_t n_cells          # cells for which attention is computed anyway


cdef int32_t _padded(const Plan *plan, const Slots *slots, int32_t i, const Chunks *chunks, int32_t way) noexcept nogil:
    """Return how many tokens a slot has with its padding."""
    cdef const Slot *slot = &slots.items[i]
    cdef int32_t n = slot.n_chunk, unit = PADDING_UNIT_COARSE if way == WAY_COARSE else PADDING_UNIT_FINE, is_between
    if way == WAY_NONE:
        return n
    if n == 0:
        is_between = way == WAY_EQUAL_JOINED and chunks.first < i < chunks.last and not plan_has_media(plan, slot)
        return chunks.n_longest if is_between and slot.n_tokens + chunks.n_longest < chunks.n_cells else 0
    n = chunks.n_longest if way <= WAY_EQUAL else min(chunks.n_longest, (n + unit - 1) // unit * unit)
    return n if slot.n_tokens + n < slots.n_ctx else slot.n_chunk


cdef int32_t _measure(const Plan *plan, Slots *slots, Chunks *chunks) noexcept nogil:
    """Set the chunk of each slot in the prefill decode. Return how many slots have one."""
    cdef Slot *slot
    cdef int32_t i, n = 0, n_cells = 0
    chunks.first = chunks.last = chunks.n_longest = 0
    for i in range(slots.n):
        slot = &slots.items[i]
        slot.n_chunk = slot.n_padding = 0
        if slot.state == SLOT_PREFILLING:
            slot.n_chunk = slot.n_planned
            if plan.is_separate:
                slot.n_chunk = min(slot.n_chunk, slot.n_prefill - 1 - slot.n_tokens)
        if slot.n_chunk == 0:
            continue
        chunks.first = i if n == 0 else chunks.first
        chunks.last = i
        chunks.n_longest = max(chunks.n_longest, slot.n_chunk)
        n_cells = max(n_cells, slot.n_tokens + slot.n_chunk)
        n += 1
    chunks.n_cells = cells_computed(slots, n_cells)
    return n


cdef int _can_pad(const Plan *plan, const Slots *slots) noexcept nogil:
    return plan.has_device and slots.can_fill and (plan.n_decoding == 0 or plan.is_separate)


cdef int padding_fits(const Plan *plan, const Slots *slots, int32_t n, int32_t n_longest) noexcept nogil:
    """Return whether n prompts fit into the step if they are padded to equal length, or need no padding. What fits into
    one graph is never too much."""
    if not _can_pad(plan, slots):
        return 1
    return n * (n_longest - plan.is_separate) <= max(plan.ubatch, plan.budget - plan.n_decoding)


cdef void padding_choose(Plan *plan, Slots *slots) noexcept nogil:
    """Choose the cheapest way to pad: fewer graphs against more tokens."""
    cdef Slot *slot
    cdef Chunks chunks
    cdef int32_t i, way, n_tokens, n_padded, cost, least = INT32_MAX, best = WAY_NONE
    # A fixed budget applies to padding too.
    cdef int32_t n_most = plan.budget - plan.n_decoding if plan.tokens_max else plan.batch_max
    plan.n_padding = plan.is_one_graph = 0
    if _measure(plan, slots, &chunks) < 2 or not _can_pad(plan, slots):
        return
    for way in range(WAY_NONE, -1, -1):  # no padding, unless something is better
        n_tokens = n_padded = 0
        for i in range(slots.n):
            slot = &slots.items[i]
            slot.n_left = _padded(plan, slots, i, &chunks, way)
            n_tokens += slot.n_left
            n_padded += slot.n_left > slot.n_chunk
        cost = n_tokens + n_padded * (1 + slots.n_ctx // CELLS_PER_TOKEN)
        cost += _graph_tokens(plan) * _count_graphs(slots, plan.ubatch)
        if cost < least and (n_tokens <= n_most or way == WAY_NONE):
            least = cost
            best = way
    for i in range(slots.n):
        slot = &slots.items[i]
        slot.n_left = _padded(plan, slots, i, &chunks, best)
        slot.n_padding = slot.n_left - slot.n_chunk
        plan.n_padding += slot.n_padding
    plan.is_one_graph = not plan.is_separate and _count_graphs(slots, plan.ubatch) == 1


cdef void padding_remove(const Plan *plan, Slots *slots) noexcept nogil:
    """Remove the padding, after its decode and before any other."""
    cdef const Slot *slot
    cdef int32_t i
    if plan.n_padding == 0:
        return
    for i in range(slots.n):
        slot = &slots.items[i]
        if slot.n_padding:
            slots.table.seq_rm(slots.ctx, slot.id, slot.n_pos + slot.n_chunk, -1)
