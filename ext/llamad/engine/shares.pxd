# Applies this engine's share of CPU threads and of the memory for prompts.
from libc.stdint cimport int32_t, int64_t

from llamad.engine.state.engine_state cimport State

cdef void shares_set(State *state, int32_t n_threads, int32_t n_threads_batch, int64_t cache_bytes) noexcept nogil
cdef int shares_run(State *state) noexcept nogil
