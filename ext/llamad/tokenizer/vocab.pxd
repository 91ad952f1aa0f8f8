# The vocabulary: text to tokens through the function table, tokens to bytes from a table of pieces made at load.
from libc.stdint cimport int32_t, uint8_t, uint32_t

from llamad.base.function_table cimport llamad_table

ctypedef struct Pieces:
    char *bytes
    uint32_t *offsets     # n_vocab + 1
    uint8_t *is_eog
    int32_t n_vocab

cdef class Vocab:
    cdef const llamad_table *table
    cdef const void *handle
    cdef object owner
    cdef Pieces pieces
    cdef Pieces marked        # the pieces with visible markers; bytes is NULL if there are none
    cdef int _fill(self, Pieces *pieces, bint special, frozenset markers) except -1
    cdef readonly int n_vocab
    cdef readonly int n_token_bytes  # length of the longest token
    cdef int _measure(self) except -1

cdef class Cancel:
    cdef int32_t is_set
