# How likely the tokens of a prompt itself were.
from llamad.engine.state cimport State

cdef void take_prompt_probs(State *state) noexcept nogil
