# Text that a task has generated, as its sink receives it.
from libc.stdint cimport int64_t

cdef class TextEvent:
    cdef readonly list tokens
    cdef readonly bytes data
    cdef readonly int64_t n_decoded
    cdef readonly int64_t t_us
    cdef readonly int64_t prompt_us
    cdef readonly int64_t predict_us
    cdef readonly list probs
    cdef readonly int64_t n_drafted
    cdef readonly int64_t n_accepted
    cdef readonly bint is_followed
    cdef readonly bytes point  # from `n_ahead` of the record to the end of its mark (protocol/messages.pxd)
    cdef readonly bytes ahead  # the tokens that are held back, and their probabilities
