# The draft model's part of a step.
from libc.stdint cimport int32_t

from llamad.engine.drafts.drafts cimport Drafts
from llamad.engine.kv.slots cimport Slot
from llamad.engine.state.engine_state cimport State

cdef int model_step_computes(const State *state) noexcept nogil
cdef void model_step_learn(State *state, double step_us) noexcept nogil
cdef void model_step_read(State *state) noexcept nogil
cdef int32_t model_step_fixed(State *state) noexcept nogil
cdef double model_step_choose(State *state, double *tokens, int32_t n_slots, int32_t n_rows,
                              int32_t n_width_max) noexcept nogil
cdef int model_step_try(State *state, const double *tokens, int32_t n_slots, int32_t n_rows, int32_t n_width_max,
                        int32_t can_verify) noexcept nogil
cdef void model_step_draft(State *state) noexcept nogil
cdef void model_step_verified(Drafts *drafts, const Slot *slot, int32_t n_right, int32_t n_tokens) noexcept nogil
cdef void model_step_token(Drafts *drafts, const Slot *slot, int32_t token) noexcept nogil
cdef void model_step_forget(Drafts *drafts, int32_t slot) noexcept nogil
