# Owns: the share of CPU threads and of the memory for prompts that this engine uses. Several engines of a daemon share a
# machine, and the front decides who gets how much. Runs on the engine thread, between two steps; only shares_set() is
# called by another thread. Starts and ends no thread.
from libc.stdint cimport int32_t, int64_t

from llamad.base.system cimport load_int, now_us, store_int, store_time, take_int, take_time, wake_send
from llamad.engine.prefix.checkpointing cimport checkpointing_trim
from llamad.engine.state.engine_state cimport Share, State

cdef enum:
    TRIM_US = 2000           # longest time of a turn for dropping prompts: giving memory back takes long


cdef void shares_set(State *state, int32_t n_threads, int32_t n_threads_batch, int64_t cache_bytes) noexcept nogil:
    """Let the engine thread apply a share before its next step; 0 changes nothing. Any thread."""
    cdef Share *share = &state.share
    if n_threads > 0:
        store_int(&share.n_threads, n_threads)
    if n_threads_batch > 0:
        store_int(&share.n_threads_batch, n_threads_batch)
    if cache_bytes > 0:
        store_time(&share.cache_bytes, cache_bytes)
    store_int(&share.is_new, 1)
    wake_send(state.channel.command_fd)


cdef void _apply(State *state) noexcept nogil:
    cdef Share *share = &state.share
    cdef int32_t n_threads = take_int(&share.n_threads), n_threads_batch = take_int(&share.n_threads_batch)
    cdef int64_t cache_bytes = take_time(&share.cache_bytes)
    if n_threads or n_threads_batch:
        state.table.set_threads(state.ctx, n_threads, n_threads_batch)
        if state.drafts.model != NULL and state.drafts.model.shares_threads:
            state.table.set_threads(state.drafts.model.ctx, n_threads, n_threads_batch)
    if cache_bytes and state.cache.bytes_max:  # a prompt cache that is off stays off
        state.cache.bytes_max = <size_t>cache_bytes
        state.slots.checkpoints.bytes_max = <size_t>cache_bytes // 2
        state.is_trimming = 1


cdef int shares_run(State *state) noexcept nogil:
    """Apply a new share. Return whether prompts are still to be dropped."""
    cdef int64_t t_end
    if load_int(&state.share.is_new) and take_int(&state.share.is_new):
        _apply(state)
    if not state.is_trimming:
        return 0
    t_end = now_us() + TRIM_US
    while checkpointing_trim(state):
        if now_us() > t_end:
            return 1
    state.is_trimming = 0
    return 0
