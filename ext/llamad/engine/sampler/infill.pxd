# llama.cpp's sampler for text between two others: it ends if an end is likely, else it keeps only clearly likely
# tokens.
from libc.stddef cimport size_t
from libc.stdint cimport int32_t

from llamad.engine.sampler.candidates cimport Candidates

ctypedef struct Piece:
    const char *text
    size_t offset            # of the text in `bytes`, because these may still move
    int32_t n
    int32_t candidate        # its index in the list

# Buffers that grow to the longest list so far.
ctypedef struct Infill:
    Piece *pieces
    int32_t *ranks           # the rank of each candidate among the sorted pieces; -1: it has no text
    int32_t *longer          # the candidates whose text begins with that of one
    int32_t n_max
    char *bytes
    size_t n_bytes_max

cdef void infill_close(Infill *infill) noexcept nogil
cdef int infill_apply(Infill *infill, Candidates *c, const void *vocab, int32_t end_token) noexcept nogil
