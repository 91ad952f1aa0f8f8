# Computes the log probabilities of a prompt's own tokens.
from llamad.engine.state.engine_state cimport State

cdef void take_prompt_probs(State *state) noexcept nogil
