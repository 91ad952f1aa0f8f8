# Owns: pads, tokens behind what is read of a prompt in a step, which are removed at once. Runs on the engine thread.
#
# With a stream for each slot llama.cpp computes several prompts in one graph only as far as all of them go: what is left of
# the longer ones is another graph, and so on, and prompts that are not in neighbouring slots have their own in any case. To
# a device a graph is worth some hundred tokens, nearly all of it the host's work. So prompts are made equally long where
# that is cheaper, and slots between them are read along. Nothing that stands behind a prompt changes what it means.
from libc.stdint cimport INT32_MAX, int32_t

from llamad.engine.kv.slots cimport SLOT_READING, Slot, slots_cells_computed

cdef enum:
    GRAPH_US = 3000          # building and launching one (1B model: 4,500), or more: it reads all weights
    GRAPH_TOKENS_MIN = 16
    GRAPH_TOKENS_MAX = 512
    GRAPH_TOKENS = 64        # while nothing is known
    GRAPHS_MAX = 64          # counted
    N_WAYS = 4
    CELLS_A_TOKEN = 10000    # are looked at in the time of a token


cdef int32_t _graph_tokens(const Plan *plan) noexcept nogil:
    """What a graph costs, in tokens."""
    if plan.best_token_us <= 0:
        return GRAPH_TOKENS
    return <int32_t>max(<double>GRAPH_TOKENS_MIN,
                        min(<double>GRAPH_TOKENS_MAX, max(<double>GRAPH_US, plan.write_us) / plan.best_token_us))


cdef int32_t _count_graphs(Slots *slots, int32_t ubatch) noexcept nogil:
    """How many graphs llama.cpp makes of the slots' n_left tokens, which are gone then."""
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


ctypedef struct Pieces:
    int32_t first            # slots that read: the first and the last
    int32_t last
    int32_t n_longest        # the longest of their pieces
    int32_t n_cells          # that attention is computed for in any case


cdef int32_t _padded(const Slots *slots, int32_t i, const Pieces *pieces, int32_t way) noexcept nogil:
    """How many tokens a slot has in one way to even them out: all alike, with those between or without, or in steps."""
    cdef const Slot *slot = &slots.items[i]
    cdef int32_t n = slot.n_piece, unit = 128 if way == 2 else 32, is_between
    if way == N_WAYS:
        return n
    if n == 0:
        is_between = way == 0 and pieces.first < i < pieces.last
        return pieces.n_longest if is_between and slot.n_tokens + pieces.n_longest < pieces.n_cells else 0
    n = pieces.n_longest if way <= 1 else min(pieces.n_longest, (n + unit - 1) // unit * unit)
    return n if slot.n_tokens + n < slots.n_ctx else slot.n_piece


cdef int32_t _measure(const Plan *plan, Slots *slots, Pieces *pieces) noexcept nogil:
    """What each slot reads, in the decode for prompts. How many slots do."""
    cdef Slot *slot
    cdef int32_t i, n = 0, n_cells = 0
    pieces.first = pieces.last = pieces.n_longest = 0
    for i in range(slots.n):
        slot = &slots.items[i]
        slot.n_piece = slot.n_pads = 0
        if slot.state == SLOT_READING:
            slot.n_piece = slot.n_planned
            if plan.is_apart:
                slot.n_piece = min(slot.n_piece, slot.task.command.n_prompt - 1 - slot.n_tokens)
        if slot.n_piece == 0:
            continue
        pieces.first = i if n == 0 else pieces.first
        pieces.last = i
        pieces.n_longest = max(pieces.n_longest, slot.n_piece)
        n_cells = max(n_cells, slot.n_tokens + slot.n_piece)
        n += 1
    pieces.n_cells = slots_cells_computed(slots, n_cells)
    return n


cdef int _can_pad(const Plan *plan, const Slots *slots) noexcept nogil:
    return plan.has_device and slots.can_fill and (plan.n_writing == 0 or plan.is_apart)


cdef int pads_fit(const Plan *plan, const Slots *slots, int32_t n, int32_t n_longest) noexcept nogil:
    """Whether so many prompts have room in the step when they are equally long, where that counts. What one graph holds
    is never too much."""
    if not _can_pad(plan, slots):
        return 1
    return n * (n_longest - plan.is_apart) <= max(plan.ubatch, plan.budget - plan.n_writing)


cdef void pads_choose(Plan *plan, Slots *slots) noexcept nogil:
    """Takes the cheapest way: fewer graphs against more tokens."""
    cdef Slot *slot
    cdef Pieces pieces
    cdef int32_t i, way, n_tokens, n_padded, cost, least = INT32_MAX, best = N_WAYS
    # A fixed budget is one.
    cdef int32_t n_most = plan.budget - plan.n_writing if plan.tokens_max else plan.batch_max
    plan.n_pads = plan.is_one_graph = 0
    if _measure(plan, slots, &pieces) < 2 or not _can_pad(plan, slots):
        return
    for way in range(N_WAYS, -1, -1):  # N_WAYS is to leave them as they are, and is kept where nothing is better
        n_tokens = n_padded = 0
        for i in range(slots.n):
            slot = &slots.items[i]
            slot.n_left = _padded(slots, i, &pieces, way)
            n_tokens += slot.n_left
            n_padded += slot.n_left > slot.n_piece
        # To remove them from a slot takes llama.cpp a look at each of its cells.
        cost = n_tokens + n_padded * (1 + slots.n_ctx // CELLS_A_TOKEN)
        cost += _graph_tokens(plan) * _count_graphs(slots, plan.ubatch)
        if cost < least and (n_tokens <= n_most or way == N_WAYS):
            least = cost
            best = way
    for i in range(slots.n):
        slot = &slots.items[i]
        slot.n_left = _padded(slots, i, &pieces, best)
        slot.n_pads = slot.n_left - slot.n_piece
        plan.n_pads += slot.n_pads
    plan.is_one_graph = not plan.is_apart and _count_graphs(slots, plan.ubatch) == 1


cdef void pads_remove(const Plan *plan, Slots *slots) noexcept nogil:
    """After their decode and before any other."""
    cdef const Slot *slot
    cdef int32_t i
    if plan.n_pads == 0:
        return
    for i in range(slots.n):
        slot = &slots.items[i]
        if slot.n_pads:
            slots.table.seq_rm(slots.ctx, slot.id, slot.n_pos + slot.n_piece, -1)
