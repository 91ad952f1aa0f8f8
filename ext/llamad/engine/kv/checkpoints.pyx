# Owns: checkpoints, the lists that contain them, and their cost. Runs on the engine thread, between two steps. It
# decides nothing: prefix/checkpointing.pyx says when one is made and which one is dropped for it.
#
# A checkpoint never changes. It can be used for any sequence whose first n_tokens are those after which it was made, as
# long as the rest of the memory still holds them. So a slot and a prompt cache entry can share one, and it counts once.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from llamad.base.system cimport now_us
from llamad.engine.costs.scheduler cimport RARE_LEARN_RATE
from llamad.engine.kv.trust cimport trust_row
from llamad.protocol.cache_memory cimport (
    LLAMAD_CACHE_CHECKPOINT, llamad_cache, llamad_cache_row, memory_drop, memory_prefix, memory_publish, memory_risk,
    memory_survive, memory_take,
)

cdef int list_init(CheckpointList *list, int32_t n_max) noexcept nogil:
    """Return 0, or -1 if memory ran out."""
    list.n = 0
    list.items = <Checkpoint **>calloc(<size_t>n_max, sizeof(void *)) if n_max else NULL
    return -1 if n_max and list.items == NULL else 0


cdef void checkpoint_let_go(Checkpoints *all, Checkpoint *checkpoint) noexcept nogil:
    """Give up one use of the checkpoint, which is gone after the last one."""
    checkpoint.n_refs -= 1
    if checkpoint.n_refs == 0:
        all.n -= 1
        all.n_bytes -= checkpoint.capacity
        if not all.leaves_rows:
            memory_drop(all.trust.memory, checkpoint.row)
        free(checkpoint)


cdef void list_add(CheckpointList *list, Checkpoint *checkpoint) noexcept nogil:
    """Append a checkpoint, which has more tokens than the others. The list must have room."""
    checkpoint.n_refs += 1
    list.items[list.n] = checkpoint
    list.n += 1


cdef void list_drop(Checkpoints *all, CheckpointList *list, int32_t i) noexcept nogil:
    cdef int32_t k
    checkpoint_let_go(all, list.items[i])
    list.n -= 1
    for k in range(i, list.n):
        list.items[k] = list.items[k + 1]


cdef void list_cut(Checkpoints *all, CheckpointList *list, int32_t n_tokens) noexcept nogil:
    """Drop the checkpoints after n_tokens, because the sequence is truncated to that length."""
    while list.n and list.items[list.n - 1].n_tokens > n_tokens:
        list_drop(all, list, list.n - 1)


cdef void list_free(Checkpoints *all, CheckpointList *list) noexcept nogil:
    list_cut(all, list, -1)
    free(list.items)
    list.items = NULL


cdef Checkpoint *list_find(const CheckpointList *list, int32_t n_tokens) noexcept nogil:
    """Return the last checkpoint after at most n_tokens, or NULL."""
    cdef int32_t i = list.n - 1
    while i >= 0 and list.items[i].n_tokens > n_tokens:
        i -= 1
    return list.items[i] if i >= 0 else NULL


cdef int32_t list_reaches(const CheckpointList *list, int32_t n_tokens) noexcept nogil:
    """Return how many of the first n_tokens a checkpoint can restore."""
    cdef const Checkpoint *checkpoint = list_find(list, n_tokens)
    return checkpoint.n_tokens if checkpoint != NULL else 0


cdef void list_share(Checkpoints *all, CheckpointList *list, const CheckpointList *other) noexcept nogil:
    """Make the list equal to the other; it must have room for that."""
    cdef int32_t i
    list_cut(all, list, -1)
    for i in range(other.n):
        list.items[i] = other.items[i]
        list.items[i].n_refs += 1
    list.n = other.n


cdef void list_thin(Checkpoints *all, CheckpointList *list) noexcept nogil:
    """Make room for one more in a full list: drop the first that follows another within min_step, or else the very
    first. The first is often the end of a system prompt, which other conversations share."""
    cdef int32_t i = 1
    if list.n < all.n_max:
        return
    while i < list.n and list.items[i].n_tokens - list.items[i - 1].n_tokens > all.min_step:
        i += 1
    all.n_dropped += 1
    list_drop(all, list, i if i < list.n else 0)


cdef void _spent(Checkpoints *all, int64_t t_start, int is_made) noexcept nogil:
    cdef int64_t us = now_us() - t_start
    all.state_us += us
    all.state_us_max = max(all.state_us_max, us)
    if is_made:
        all.us += RARE_LEARN_RATE * (<double>us - all.us) if all.us > 0 else <double>us


cdef void _describe(llamad_cache *memory, int32_t row, const CheckpointOf *of, size_t n_state) noexcept nogil:
    """Fill the row, and let the next engine have the checkpoint, too, unless it depends on media."""
    cdef llamad_cache_row *about = &memory.rows[row]
    cdef uint64_t prefix = 0
    cdef int32_t i, has_rows = 0
    for i in range(of.n_tokens):
        prefix = memory_prefix(prefix, of.tokens[i])
        has_rows |= of.tokens[i] < 0
    about.kind = LLAMAD_CACHE_CHECKPOINT
    about.n_tokens = of.n_tokens
    about.n_bytes = n_state
    about.owner = of.owner
    about.adapters_base = of.adapters.base
    about.adapters_set = of.adapters.set
    about.n_base = of.adapters.n_base
    about.before = prefix
    if not has_rows:
        memory_publish(memory, row)


cdef Checkpoint *checkpoint_adopt(Checkpoints *all, int32_t row) noexcept nogil:
    """Return the checkpoint that the row describes, for list_add(); NULL if memory ran out. Nobody uses it yet."""
    cdef const llamad_cache_row *about = &all.trust.memory.rows[row]
    cdef Checkpoint *checkpoint = <Checkpoint *>calloc(1, sizeof(Checkpoint))
    if checkpoint == NULL:
        return NULL
    all.last_number += 1
    checkpoint.number = all.last_number
    checkpoint.n_tokens = about.n_tokens
    checkpoint.row = row
    checkpoint.pages = all.trust.memory.places[row].data
    checkpoint.n_state = about.n_bytes
    checkpoint.capacity = about.capacity
    all.n += 1
    all.n_bytes += checkpoint.capacity
    return checkpoint


cdef int checkpoint_make(Checkpoints *all, CheckpointList *list, const llamad_table *table, void *ctx,
                         const CheckpointOf *of, size_t n_state) noexcept nogil:
    """Append a checkpoint of the sequence to the list, which must have room. Return 0, or -1. Nothing may be pending for
    the sequence."""
    cdef int64_t t_start = now_us()
    cdef llamad_cache *memory = all.trust.memory
    cdef Checkpoint *checkpoint
    cdef int32_t row = memory_take(memory, n_state, -1)
    if row < 0:
        return -1
    if table.state_get(ctx, of.seq, memory.places[row].data, n_state, 1) != n_state:
        memory_drop(memory, row)
        return -1
    _describe(memory, row, of, n_state)
    checkpoint = checkpoint_adopt(all, row)
    if checkpoint == NULL:
        memory_drop(memory, row)
        return -1
    list_add(list, checkpoint)
    all.n_made += 1
    _spent(all, t_start, 1)
    return 0


cdef int checkpoint_restore(Checkpoints *all, const Checkpoint *checkpoint, const llamad_table *table, void *ctx,
                            int32_t seq, int32_t n_pos) noexcept nogil:
    """Make the sequence, of which the checkpoint was made, hold its first n_tokens again, which take n_pos positions.
    Return 0, or -1; then it may hold anything. Nothing at all may be pending."""
    cdef int64_t t_start = now_us()
    cdef uint32_t row_state
    if not trust_row(all.trust, checkpoint.row):
        return -1
    row_state = memory_risk(all.trust.memory, checkpoint.row)
    if table.state_set(ctx, seq, checkpoint.pages, checkpoint.n_state, 1) != checkpoint.n_state:
        return -1
    memory_survive(all.trust.memory, checkpoint.row, row_state)
    if table.seq_rm(ctx, seq, n_pos, -1) != 1:
        return -1
    all.n_used += 1
    _spent(all, t_start, 0)
    return 0
