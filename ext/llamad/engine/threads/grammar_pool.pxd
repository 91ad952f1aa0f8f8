# The grammar threads and their queue: sampling that takes too long for a step because of a grammar.
from libc.stdint cimport int32_t, int64_t, uint64_t

from llamad.base.thread_pool cimport JobPool
from llamad.engine.kv.slots cimport Slot, Slots

cdef enum:
    GRAMMAR_THREADS = 2

ctypedef struct GrammarPool:
    JobPool jobs              # its mutex also protects a slot's deferral, until it is done
    void *scratch[GRAMMAR_THREADS]
    int command_fd
    int64_t work_fixed        # a fixed allowance for each token, for tests; -1: adaptive

    # Only for the engine thread.
    int32_t n_out             # slots that are deferred
    uint64_t n_deferred
    int64_t deferred_us

cdef GrammarPool *grammar_pool_start(int32_t n_vocab, int command_fd, int64_t work_fixed) noexcept nogil
cdef void grammar_pool_stop(GrammarPool *pool) noexcept nogil
cdef void grammar_pool_begin(GrammarPool *pool, Slots *slots, const int32_t *outputs, int32_t n) noexcept nogil
cdef void grammar_pool_add(GrammarPool *pool, Slot *slot) noexcept nogil
cdef Slot *grammar_pool_next(GrammarPool *pool, Slots *slots) noexcept nogil
cdef void grammar_pool_drop(GrammarPool *pool, Slot *slot) noexcept nogil
