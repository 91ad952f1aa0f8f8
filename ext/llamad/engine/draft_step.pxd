# Drafts: guesses at a slot's next tokens, which one step verifies together.
from libc.stdint cimport int64_t

from llamad.engine.kv.slots cimport Slot
from llamad.engine.state.engine_state cimport State

cdef int draft_step_computes(const State *state) noexcept nogil
cdef void draft_step_plan(State *state) noexcept nogil
cdef void draft_step_follow(State *state) noexcept nogil
cdef void draft_step_take_deferred(State *state, int64_t now) noexcept nogil
cdef void draft_step_take(State *state, Slot *slot, int64_t now) noexcept nogil
