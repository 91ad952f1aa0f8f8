# llama.cpp's sampler for text between two others: end where an end is likely, else only what is clearly meant.
from libc.stddef cimport size_t
from libc.stdint cimport int32_t

from llamad.engine.sampler.candidates cimport Candidates

ctypedef struct Piece:
    const char *text
    size_t offset            # of the text in the bytes, while these may still move
    int32_t n
    int32_t candidate        # its place in the list

# Grown to the longest list seen.
ctypedef struct Infill:
    Piece *pieces
    int32_t *ranks           # of each candidate among the sorted pieces; -1: it has no text
    int32_t *longer          # the candidates that one is a prefix of
    int32_t n_max
    char *bytes
    size_t n_bytes_max

cdef void infill_close(Infill *infill) noexcept nogil
cdef int infill_apply(Infill *infill, Candidates *c, const void *vocab, int32_t end_token) noexcept nogil
