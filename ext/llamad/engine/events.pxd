# Turns a sampled token into events: detokenizes, scans for stop strings, writes to the event ring.
from libc.stdint cimport int32_t, int64_t, uint64_t

from llamad.engine.state.engine_state cimport State
from llamad.engine.kv.slots cimport Slot
from llamad.protocol.messages cimport ActionEvent

cdef void emit_wake(State *state) noexcept nogil
cdef void take_token(State *state, Slot *slot, int32_t token, int64_t now) noexcept nogil
cdef void finish_done(State *state, Slot *slot, int32_t stop_type, int32_t stop_word) noexcept nogil
cdef void finish_failed(State *state, Slot *slot, int32_t failure, int32_t code) noexcept nogil
cdef void emit_admitted(State *state, Slot *slot) noexcept nogil
cdef void emit_prompt(State *state, Slot *slot, int32_t i_first, int32_t n_tokens) noexcept nogil
cdef void emit_progress(State *state, int64_t now) noexcept nogil
cdef void emit_failed(State *state, uint64_t id, int32_t failure, int32_t code) noexcept nogil
cdef void emit_action(State *state, uint64_t id, const ActionEvent *outcome) noexcept nogil
cdef void emit_step(State *state, int64_t t_decode, int64_t t_wait, int64_t t_sample, int64_t t_emit,
                    int64_t t_end) noexcept nogil
