# Owns: prompts that slots get back from the prompt cache in parts, while other slots run. Runs on the engine thread,
# between two steps.
#
# A long prompt lies in several entries of the cache (cache/chains.pyx), each of which is restored by itself. If that were
# done at once, the streams of other slots would stand still for all of it. So the slot takes its task, and then gets
# one entry after the other between two steps, for a limited time. Until it has all, it prefills nothing. An entry that
# is damaged, or for which there is no room, is computed like any other part of the prompt, and so is all behind it.
#
# Cells of streams of their own, transposed values, sliding windows and recurrent states are restored at once: llama.cpp has
# no ranges of them.
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy

from llamad.base.system cimport now_us
from llamad.engine.cache.cache_entries cimport entries_drop_chain, entries_get, entries_index
from llamad.engine.cache.cache_types cimport CacheEntry, cache_spent
from llamad.engine.cache.chains cimport chain_boundary, chain_part, chain_restore_part, chain_return
from llamad.engine.kv.cells cimport cells_fit
from llamad.engine.kv.device_copies cimport copies_has
from llamad.engine.kv.slots cimport Slot, common_prefix, slot_clear, slot_keep, slots_others_run
from llamad.engine.state.engine_state cimport State
from llamad.engine.state.flush cimport flush_pending


cdef int restoring_pays(const State *state, const Slot *slot, uint64_t id) noexcept nogil:
    """Return whether the slot should get the entry in parts, because there are some, and other slots run."""
    return (state.cache.has_ranges and entries_get(&state.cache, id).begin > 0 and not copies_has(&state.cache.copies, id)
            and slots_others_run(&state.slots, slot))


cdef void restoring_begin(State *state, Slot *slot, uint64_t id, int32_t n) noexcept nogil:
    """Let the idle slot have the entry's first n tokens: at once those whose cells it has, the others once it has taken
    its task. There must be room for all, and nothing may be pending."""
    cdef int64_t i = entries_index(&state.cache, id)
    cdef CacheEntry *entry = &state.cache.entries[i]
    cdef int32_t n_kept = common_prefix(slot.tokens, entry.tokens, min(slot.n_tokens, n))
    if slot.owner != entry.owner or slot.adapters.base != entry.adapters.base or (
            slot.adapters.set != entry.adapters.set or slot.adapters.n_base != entry.adapters.n_base):
        n_kept = 0  # its cells have other values, or are another key's
    if n_kept == 0 or slot_keep(&state.slots, slot, chain_boundary(&state.cache, i, n_kept)) == 0:
        slot_clear(&state.slots, slot)
    entry.n_readers += 1
    slot.restored_entry = id
    slot.n_restored = n
    slot.n_returns = chain_return(&state.cache, i)
    if 4 * n < 3 * entry.n_tokens:
        slot.n_returns = 0  # another conversation, with the same beginning
    state.cache.n_hits += 1


cdef void restoring_end(State *state, Slot *slot) noexcept nogil:
    """Compute what the slot has not got of its prompt."""
    cdef int64_t i = entries_index(&state.cache, slot.restored_entry) if slot.restored_entry else -1
    if i >= 0:
        state.cache.entries[i].n_readers -= 1
    slot.restored_entry = 0
    slot.n_restored = 0


cdef int _restore_next(State *state, Slot *slot) noexcept nogil:
    """Restore the slot's next part. Return whether that was possible."""
    cdef int64_t t_start = now_us(), k
    cdef const CacheEntry *entry
    cdef int32_t n_before = slot.n_tokens
    k = chain_part(&state.cache, entries_index(&state.cache, slot.restored_entry), n_before)
    if k < 0:
        return 0  # the entry is gone
    entry = &state.cache.entries[k]
    if not cells_fit(&state.slots, entry.n_tokens - n_before) or flush_pending(state, slot) < 0:
        return 0
    if not chain_restore_part(&state.cache, slot, k):
        restoring_end(state, slot)
        entries_drop_chain(&state.cache, k)
        return 0
    memcpy(slot.tokens + n_before, entry.tokens + n_before, <size_t>(entry.n_tokens - n_before) * sizeof(int32_t))
    slot.n_tokens = slot.n_pos = entry.n_tokens
    if slot.n_tokens > slot.n_restored:
        slot_keep(&state.slots, slot, slot.n_restored)
    slot.n_cached = slot.n_begun = slot.n_tokens
    state.slots.n_reused += <uint64_t>(slot.n_tokens - n_before)
    state.cache.n_restored += <uint64_t>(slot.n_tokens - n_before)
    cache_spent(&state.cache, t_start)
    return 1


cdef Slot *restoring_oldest(State *state) noexcept nogil:
    """Return the slot with the oldest task of those that wait for parts, or NULL."""
    cdef Slot *oldest = NULL
    cdef Slot *slot
    cdef int32_t i
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if slot.restored_entry and (oldest == NULL or slot.task.command.id < oldest.task.command.id):
            oldest = slot
    return oldest


cdef void restoring_next(State *state, Slot *slot) noexcept nogil:
    """Restore the next part for a slot that waits for some."""
    if not _restore_next(state, slot) or slot.n_tokens >= slot.n_restored:
        restoring_end(state, slot)
