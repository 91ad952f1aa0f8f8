# How likely the tokens of a prompt itself were.
from llamad.engine.core cimport State

cdef void take_prompt_probs(State *state) noexcept nogil
