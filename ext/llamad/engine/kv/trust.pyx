# Owns: the check of entries that another engine has left in the cache memory: their checksum, and then every length and
# number, as in a state from outside (ses1/check.cpp). A thread beside the engine checks them all, and the engine thread
# those that it needs before that. An entry that this engine has written itself is trusted.
from libc.stdint cimport int32_t

from llamad.base.system cimport fetch_add_int, futex_wake_all, load_int, sleep_us, store_int, swap_int
from llamad.protocol.cache_memory cimport (
    LLAMAD_CACHE_BAD, LLAMAD_CACHE_CHECKING, LLAMAD_CACHE_END, LLAMAD_CACHE_PART, LLAMAD_CACHE_READY, LLAMAD_CACHE_ROWS,
    LLAMAD_CACHE_STATE, LLAMAD_CACHE_TRUSTED, LLAMAD_CACHE_UNCHECKED, llamad_cache, llamad_cache_row, memory_checksum,
)
from llamad.ses1.ses1 cimport checkpoint_is_sound, end_is_sound, segment_is_sound, state_is_sound

cdef enum:
    WAIT_US = 200


cdef int _is_right(const Trust *trust, int32_t row) noexcept nogil:
    cdef const llamad_cache_row *about = &trust.memory.rows[row]
    cdef const unsigned char *data = trust.memory.places[row].data
    if trust.layout == NULL or memory_checksum(data, about.n_bytes) != about.checksum:
        return 0
    if about.kind == LLAMAD_CACHE_END:
        return end_is_sound(trust.layout, data, about.n_bytes, trust.n_vocab, trust.n_ctx, about.n_tokens)
    if trust.memory.places[row].begin or about.kind == LLAMAD_CACHE_PART:
        return segment_is_sound(trust.layout, data, about.n_bytes, trust.n_vocab, trust.n_ctx,
                                trust.memory.places[row].begin, about.n_tokens)
    if about.kind == LLAMAD_CACHE_STATE:
        return state_is_sound(trust.layout, data, about.n_bytes, trust.n_vocab, trust.n_ctx, about.n_tokens)
    return checkpoint_is_sound(trust.layout, data, about.n_bytes, about.n_tokens)


cdef int _check(const Trust *trust, int32_t row) noexcept nogil:
    """Check the row, if nobody has begun to. Return whether it did."""
    cdef llamad_cache *memory = trust.memory
    cdef int32_t *place = &memory.places[row].trust
    if not swap_int(place, LLAMAD_CACHE_UNCHECKED, LLAMAD_CACHE_CHECKING):
        return 0
    if _is_right(trust, row):
        store_int(place, LLAMAD_CACHE_TRUSTED)
        return 1
    store_int(place, LLAMAD_CACHE_BAD)
    fetch_add_int(&memory.n_bad, 1)
    fetch_add_int(&memory.news, 1)
    futex_wake_all(&memory.news)
    return 1


cdef int trust_row(const Trust *trust, int32_t row) noexcept nogil:
    """Return whether the row's bytes can be used, after checking them if that is necessary. Only the engine thread, which
    owns the row."""
    cdef const int32_t *place = &trust.memory.places[row].trust
    if load_int(place) == LLAMAD_CACHE_TRUSTED:
        return 1
    _check(trust, row)
    while load_int(place) == LLAMAD_CACHE_CHECKING:
        sleep_us(WAIT_US)
    return load_int(place) == LLAMAD_CACHE_TRUSTED


cdef int trust_next(const Trust *trust) noexcept nogil:
    """Check one row that nobody has checked. Return whether there was one. Any thread beside the engine's."""
    cdef llamad_cache *memory = trust.memory
    cdef int32_t i, is_checked
    for i in range(LLAMAD_CACHE_ROWS):
        if load_int(&memory.places[i].trust) != LLAMAD_CACHE_UNCHECKED:
            continue
        fetch_add_int(&memory.rows[i].n_engine_readers, 1)  # then a second look, as in cache_table.c
        is_checked = load_int(<const int32_t *>&memory.rows[i].state) == LLAMAD_CACHE_READY and _check(trust, i)
        fetch_add_int(&memory.rows[i].n_engine_readers, -1)
        if is_checked:
            return 1
    return 0
