# Owns: the copies of slots' states on the devices, and how much memory they may take there. Runs on the engine thread,
# between two steps. host_cache.pyx has the states themselves: a copy may be lost at any time.
#
# llama.cpp has one copy for each sequence: the state that was last saved there. It aborts if there is no memory for a
# copy, so one is made only while the copies take less than what else is free beyond the margin. It cannot free a copy
# before the context is closed. But it replaces one by a smaller one, so the copy of an empty sequence is replaced by the
# state of one token.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from llamad.base.function_table cimport LLAMAD_STATE_ON_DEVICE


cdef int copies_init(Copies *copies, const llamad_table *table, void *ctx, int32_t n, const uint8_t *smallest,
                     size_t n_smallest, int64_t margin) noexcept nogil:
    """Allow copies of n sequences. Return 0, or -1 if memory ran out."""
    copies.table = table
    copies.ctx = ctx
    copies.n = n
    copies.margin = margin
    copies.n_smallest = n_smallest
    copies.smallest = <uint8_t *>malloc(n_smallest)
    copies.items = <Copy *>calloc(<size_t>n, sizeof(Copy))
    if copies.smallest == NULL or copies.items == NULL:
        return -1
    memcpy(copies.smallest, smallest, n_smallest)
    return 0


cdef void copies_free(Copies *copies) noexcept nogil:
    """Free what describes the copies. They themselves belong to the context."""
    cdef int32_t i
    if copies.items != NULL:
        for i in range(copies.n):
            free(copies.items[i].data)
    free(copies.items)
    free(copies.smallest)
    memset(copies, 0, sizeof(Copies))


cdef const Copy *_find(const Copies *copies, uint64_t entry) noexcept nogil:
    cdef int32_t i
    if copies.items != NULL and entry != 0:
        for i in range(copies.n):
            if copies.items[i].entry == entry:
                return &copies.items[i]
    return NULL


cdef int copies_has(const Copies *copies, uint64_t entry) noexcept nogil:
    return _find(copies, entry) != NULL


cdef int _save(Copies *copies, int32_t seq, int64_t n_bytes) noexcept nogil:
    """Replace the sequence's copy by its state. Return whether that can be restored."""
    cdef Copy *copy = &copies.items[seq]
    cdef size_t n = copies.table.state_size(copies.ctx, seq, LLAMAD_STATE_ON_DEVICE)
    cdef uint8_t *data = <uint8_t *>realloc(copy.data, n) if n else NULL
    if data == NULL:
        return 0
    copy.data = data
    copy.n = n
    copy.entry = 0
    copies.n_bytes += n_bytes - copy.n_bytes
    copy.n_bytes = n_bytes
    return copies.table.state_get(copies.ctx, seq, data, n, LLAMAD_STATE_ON_DEVICE) == n


cdef void _shrink_all(Copies *copies, const Slots *slots) noexcept nogil:
    """Free the memory of all copies whose sequences are empty."""
    cdef int32_t i
    for i in range(copies.n):
        if copies.items[i].n_bytes > <int64_t>copies.n_smallest and slots.items[i].n_tokens == 0:
            if copies.table.state_set(copies.ctx, i, copies.smallest, copies.n_smallest, 0) == copies.n_smallest:
                _save(copies, i, <int64_t>copies.n_smallest)
            copies.table.seq_rm(copies.ctx, i, -1, -1)


cdef void copies_make(Copies *copies, const Slots *slots, int32_t seq, uint64_t entry, size_t n_state) noexcept nogil:
    """Copy the sequence, whose state of n_state bytes the entry has, if there is room. If less than the margin is free,
    other copies are given up instead. Nothing may be pending for it."""
    cdef int64_t n = <int64_t>n_state, n_old, n_free
    if copies.items == NULL:
        return
    n_old = copies.items[seq].n_bytes  # llama.cpp frees this before it allocates
    n_free = copies.table.device_free(copies.ctx) - copies.margin
    if n_free < 0:
        _shrink_all(copies, slots)
    elif copies.n_bytes - n_old + n <= n_free + n_old - n and _save(copies, seq, n):
        copies.items[seq].entry = entry


cdef int copies_restore(Copies *copies, int32_t seq, uint64_t entry) noexcept nogil:
    """Make the empty sequence hold the entry's state. Return 1, or 0 if there is no copy or no room; then the sequence
    is empty."""
    cdef const Copy *copy = _find(copies, entry)
    if copy == NULL:
        return 0
    if copies.table.state_set(copies.ctx, seq, copy.data, copy.n, LLAMAD_STATE_ON_DEVICE) != copy.n:
        copies.table.seq_rm(copies.ctx, seq, -1, -1)
        return 0
    copies.n_hits += 1
    return 1


cdef void copies_forget(Copies *copies) noexcept nogil:
    """Note that there are no copies, because the context is new."""
    cdef int32_t i
    copies.n_bytes = 0
    if copies.items != NULL:
        for i in range(copies.n):
            copies.items[i].entry = 0
            copies.items[i].n_bytes = 0
