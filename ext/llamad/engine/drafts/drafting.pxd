# Drafts: guesses at a slot's next tokens, which one step verifies together.
from libc.stdint cimport int32_t, int64_t

from llamad.engine.drafts.drafts cimport DraftFn, Drafts
from llamad.engine.kv.slots cimport Slot
from llamad.engine.state.engine_state cimport State

cdef int drafts_init(Drafts *drafts, int32_t n_slots, int32_t n_rows_more, int32_t has_device) noexcept nogil
cdef void drafts_free(Drafts *drafts) noexcept nogil
cdef void drafts_plan(State *state) noexcept nogil
cdef void drafts_take_deferred(State *state, int64_t now) noexcept nogil
cdef void drafts_take(State *state, Slot *slot, int64_t now) noexcept nogil
