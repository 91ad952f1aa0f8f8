# What a task has generated, as the front knows it.
from libc.stdint cimport int32_t, int64_t

from llamad.client.text_event cimport TextEvent
from llamad.protocol.messages cimport ResumePoint

cdef class History:
    cdef int32_t *tokens     # those of all events
    cdef int64_t n_tokens
    cdef int64_t n_max
    cdef int64_t n_bytes     # of their text
    cdef TextEvent last
    cdef public int32_t n_cached  # prompt tokens that the task's first engine had

    cdef bytes fill(self, ResumePoint *resume, int32_t n_probs)
    cdef bytes context(self, bytes prompt)
