# Recognizes text that repeats itself, token by token.
from libc.stdint cimport int32_t, uint32_t

# A stream of symbols, and whether its end repeats what came `period` symbols before.
ctypedef struct Repeats:
    int32_t *symbols           # the last ones, a ring
    int32_t *values            # the values of those that are numbers; NULL: there are no numbers
    int32_t *places            # by the hash of a few symbols in a row: how many there were when they ended last
    int32_t mask               # of the ring
    int32_t n                  # symbols so far
    uint32_t hash              # of the last few symbols
    int32_t period             # 0: none is known
    int32_t n_repeated         # symbols in a row that repeat those one period before, and
    int32_t n_words            # how many of these are words, or parts of them
    int32_t n_numbers          # how many of these have digits

ctypedef struct LoopGuard:
    Repeats tokens
    Repeats counts             # the same text, where each number is one symbol
    int32_t number             # the value of the number that is being read
    int32_t n_digits           # its digits so far; 0: none is being read

cdef int loop_guard_init(LoopGuard *guard) noexcept nogil
cdef void loop_guard_free(LoopGuard *guard) noexcept nogil
cdef void loop_guard_begin(LoopGuard *guard) noexcept nogil
cdef float loop_guard_nearness(const LoopGuard *guard) noexcept nogil
cdef int loop_guard_add(LoopGuard *guard, int32_t token, const char *piece, int32_t n_piece) noexcept nogil
