# Owns: the buffer for states of slots. Runs on the engine thread, between two steps. chains.pyx cuts parts out of what it
# has, and joins parts in it; host_cache.pyx makes room for it within the limit of the prompt cache.
#
# llama.cpp saves and restores whole sequences. So a slot's state is read once, and what the cache lacks of it is copied
# out of the buffer, in one turn of the engine or in several. The pages are kept, because new ones are slow to write to:
# of large buffers only until the slot is saved, of small ones until nobody has used them for a while.
#
# A device copies several times as fast to and from page-locked memory. So its states are read to such a buffer, if there
# is enough memory of that kind. It is slow to allocate, so it stays until nobody has used it for a while, or until the
# cache needs its room. A part of a state that is saved by itself does not go through it: copying it once more would take
# longer (H200, 64 MiB in pieces of 512 KiB: 8.8 ms to plain pages; 3.5 ms to locked ones, and 11 ms from these).
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy
from posix.mman cimport MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap, munmap

from llamad.base.function_table cimport llamad_table
from llamad.base.system cimport now_us
from llamad.engine.costs.scheduler cimport STAGING_BYTES_KEPT, STAGING_FAST_IDLE_US, STAGING_IDLE_US
from llamad.engine.kv.slots cimport Slot

cdef enum:
    STEP = 4096              # of its size


cdef void staging_init(Staging *staging, const llamad_table *table, void *ctx, int has_device) noexcept nogil:
    """Prepare it for the states of this context. Nothing is allocated yet."""
    staging.table = table
    staging.ctx = ctx
    staging.has_device = has_device


cdef size_t staging_capacity(size_t n) noexcept nogil:
    """Return the size of a buffer for n bytes, in which a conversation can grow by some turns."""
    return (n + n // 8 + STEP - 1) // STEP * STEP


cdef void staging_free(Staging *staging) noexcept nogil:
    if staging.fast != NULL:
        staging.table.free_pages(staging.ctx, staging.fast)
    elif staging.data != NULL:
        munmap(staging.data, staging.capacity)
    staging.data = NULL
    staging.fast = NULL
    staging.capacity = staging.n_state = 0


cdef int _can_be_fast(const Staging *staging, size_t n) noexcept nogil:
    """Return whether a device may have fast memory for n bytes. Where it had none, it is not asked for as much again."""
    return staging.has_device and (staging.n_refused == 0 or staging_capacity(n) < staging.n_refused)


cdef int _make_fast(Staging *staging, size_t n) noexcept nogil:
    """Replace the buffer by one of n bytes that a device copies to and from fast. Return whether there is one; if not,
    there is no buffer at all."""
    staging_free(staging)
    staging.t_used_us = now_us()
    if not _can_be_fast(staging, n):
        return 0
    staging.data = staging.table.alloc_pages(staging.ctx, staging_capacity(n), &staging.fast)
    if staging.data == NULL:
        staging.fast = NULL
        staging.n_refused = staging_capacity(n)
        return 0
    staging.capacity = staging_capacity(n)
    return 1


cdef uint8_t *staging_take(Staging *staging, size_t n) noexcept nogil:
    """Return a buffer for n bytes, whose content is forgotten, or NULL if memory ran out."""
    cdef void *data
    staging.n_state = 0
    staging.t_used_us = now_us()
    if n > staging.capacity and not _make_fast(staging, n):
        data = mmap(NULL, staging_capacity(n), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if data == MAP_FAILED:
            return NULL
        staging.data = <uint8_t *>data
        staging.capacity = staging_capacity(n)
    return staging.data


cdef int staging_has(const Staging *staging, const Slot *slot) noexcept nogil:
    """Return whether it has the state of what the slot holds."""
    return (staging.n_state > 0 and staging.slot == slot.id and staging.n_tokens == slot.n_tokens
            and staging.adapters.base == slot.adapters.base and staging.adapters.set == slot.adapters.set
            and staging.adapters.n_base == slot.adapters.n_base
            and memcmp(staging.data + staging.n_state, slot.tokens, <size_t>slot.n_tokens * sizeof(int32_t)) == 0)


cdef size_t staging_bytes(size_t n_state, int32_t n_tokens) noexcept nogil:
    """Return how many bytes a state takes here."""
    return n_state + <size_t>n_tokens * sizeof(int32_t)


cdef int staging_read(Staging *staging, const Slot *slot, size_t n_state) noexcept nogil:
    """Read the slot's state, of n_state bytes. Return whether that was possible. Nothing may be pending for the slot."""
    cdef uint8_t *data = staging_take(staging, staging_bytes(n_state, slot.n_tokens))
    if data == NULL or staging.table.state_get(staging.ctx, slot.id, data, n_state, 0) != n_state:
        return 0
    memcpy(data + n_state, slot.tokens, <size_t>slot.n_tokens * sizeof(int32_t))
    staging.n_state = n_state
    staging.slot = slot.id
    staging.n_tokens = slot.n_tokens
    staging.adapters = slot.adapters
    return 1


cdef void staging_rest(Staging *staging) noexcept nogil:
    """Note that what it has is not needed any more."""
    staging.n_state = 0
    if staging.fast == NULL and staging.capacity > STAGING_BYTES_KEPT:
        staging_free(staging)


cdef int64_t _t_expires_us(const Staging *staging) noexcept nogil:
    return staging.t_used_us + (STAGING_IDLE_US if staging.fast == NULL else STAGING_FAST_IDLE_US)


cdef int staging_expire(Staging *staging, int64_t now) noexcept nogil:
    """Free the buffer if nobody has used it for a while. Return whether that was so."""
    if staging.data == NULL or now < _t_expires_us(staging):
        return 0
    staging_free(staging)
    return 1


cdef int staging_timeout_ms(const Staging *staging, int64_t now) noexcept nogil:
    """Return the time until staging_expire() frees the buffer, in milliseconds; -1 if there is none."""
    if staging.data == NULL:
        return -1
    return <int>max(<int64_t>0, (_t_expires_us(staging) - now) // 1000 + 1)
