# Owns: what the engine thread publishes on the channel's board. Runs on that thread. The front reads the board directly
# (client/port.pyx); it assumes that an engine hangs if it has work but begins no turn.
from libc.stdint cimport int32_t, int64_t, uint64_t

from llamad.base.system cimport store_int, store_release, store_time
from llamad.engine.kv.slots cimport SLOT_IDLE, SLOT_PREFILLING, SLOT_SUSPENDED, Slot
from llamad.engine.state.engine_state cimport State
from llamad.protocol.board cimport SlotView


cdef void publish_turn(State *state, int64_t now) noexcept nogil:
    """Publish that a turn begins."""
    if not state.channel.board.is_resting and state.channel.board.t_turn_us != 0:  # otherwise it is the first turn
        state.stats.turn_us_max = max(state.stats.turn_us_max, now - state.channel.board.t_turn_us)
    store_time(&state.channel.board.t_turn_us, now)
    store_int(&state.channel.board.is_resting, 0)


cdef void publish_rest(State *state, int64_t now) noexcept nogil:
    """Publish that the engine waits for a command, and the one count that changes while it does."""
    state.channel.board.stats.cache_buffer = state.cache.staging.capacity
    store_time(&state.channel.board.t_turn_us, now)
    store_int(&state.channel.board.is_resting, 1)


cdef void publish_task(State *state, uint64_t id) noexcept nogil:
    """Publish which task is taken or admitted (0: none), so that the front knows it if the engine ends meanwhile."""
    store_release(&state.channel.board.task_in_hand, id)


cdef void publish_counts(State *state) noexcept nogil:
    """Publish statistics and slots. Call before the front is woken, so that they match the events."""
    cdef int32_t i
    cdef const Slot *slot
    cdef SlotView *view
    state.stats.n_waiting = state.queue.n
    state.stats.n_evicted = state.slots.n_evicted
    state.stats.n_reused = state.slots.n_reused
    state.stats.n_copied = state.slots.n_copied
    state.stats.n_moved = state.slots.n_moved
    state.stats.cache_entries = state.cache.n_entries
    state.stats.cache_bytes = state.cache.n_bytes
    state.stats.cache_buffer = state.cache.staging.capacity
    state.stats.cache_saves = state.cache.n_saves
    state.stats.cache_hits = state.cache.n_hits
    state.stats.cache_restored = state.cache.n_restored
    state.stats.cache_dropped = state.cache.n_dropped
    state.stats.cache_us = state.cache.state_us
    state.stats.cache_us_max = state.cache.state_us_max
    state.stats.device_bytes = state.cache.copies.n_bytes
    state.stats.device_hits = state.cache.copies.n_hits
    state.stats.checkpoints = state.slots.checkpoints.n
    state.stats.checkpoint_bytes = state.slots.checkpoints.n_bytes
    state.stats.checkpoint_made = state.slots.checkpoints.n_made
    state.stats.checkpoint_used = state.slots.checkpoints.n_used
    state.stats.checkpoint_dropped = state.slots.checkpoints.n_dropped
    state.stats.checkpoint_us = state.slots.checkpoints.state_us
    state.stats.checkpoint_us_max = state.slots.checkpoints.state_us_max
    state.stats.n_suspended = state.slots.n_suspended
    state.stats.n_deferred = state.grammar_pool.n_deferred
    state.stats.deferred_us = state.grammar_pool.deferred_us
    state.channel.board.stats = state.stats
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        view = &state.channel.slots[i]
        view.is_busy = slot.state != SLOT_IDLE
        view.is_suspended = slot.state == SLOT_SUSPENDED
        view.n_tokens = slot.n_tokens + slot.n_parked
        view.n_decoded = slot.n_decoded
        view.n_drafted = slot.n_drafted
        view.n_accepted = slot.n_accepted
        view.n_cached = slot.n_cached
        view.n_processed = slot.n_tokens - slot.n_cached if slot.state == SLOT_PREFILLING else slot.n_processed
        view.has_new_line = slot.has_new_line
