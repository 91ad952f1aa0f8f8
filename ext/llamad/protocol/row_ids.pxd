# Ids that stand for rows of embeddings in a prompt. Rows have no token; each gets a negative id made of its file's
# digest, so that prompts are compared, cached and cut by their ids whatever they hold. Ids say of themselves where a
# run of rows begins and how many positions it takes, so that an array of ids needs nothing beside it.
#
#   every row     bit 31 is set and bit 0 is not: -1 means "no token" to llama.cpp
#   the first     bit 1: it begins a run; bit 2: its rows see each other; bit 3: the second says how many positions
#   the second    bits 2 to 19, if the first has bit 3
#   all others    bit 1 is not set
# The other bits are the digest's.
from libc.stdint cimport int32_t

cdef enum:
    ROW_BEGINS = 2
    ROW_NON_CAUSAL = 4
    ROW_GRID = 8
    N_POS_SHIFT = 2
    N_POS_MAX = (1 << 18) - 1


cdef inline int row_continues(int32_t id) noexcept nogil:
    """Return whether the id is that of a row inside a run, not of its first row."""
    return id < 0 and not id & ROW_BEGINS


cdef inline int32_t run_length(const int32_t *ids, int32_t n) noexcept nogil:
    """Return the number of rows, from the first of n ids on, that belong to the same run."""
    cdef int32_t i = 1
    while i < n and row_continues(ids[i]):
        i += 1
    return i


cdef inline int32_t run_positions(const int32_t *ids, int32_t n) noexcept nogil:
    """Return the number of positions that a whole run of n rows takes."""
    return (ids[1] >> N_POS_SHIFT) & N_POS_MAX if n > 1 and ids[0] & ROW_GRID else n


cdef inline int32_t run_floor(const int32_t *ids, int32_t i, int32_t n) noexcept nogil:
    """Return i, or the beginning of the run in n ids that a cut at i would split."""
    while 0 < i < n and row_continues(ids[i]):
        i -= 1
    return i


cdef inline int32_t ids_positions(const int32_t *ids, int32_t n) noexcept nogil:
    """Return the number of positions that n ids take, which is the position of the next id. All runs must be whole."""
    cdef int32_t i = 0, n_run, n_pos = 0
    while i < n:
        if ids[i] >= 0:
            i += 1
            n_pos += 1
            continue
        n_run = run_length(ids + i, n - i)
        n_pos += run_positions(ids + i, n_run)
        i += n_run
    return n_pos
