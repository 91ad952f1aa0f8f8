# Picks that a grammar makes long, taken out of the step: a queue and the threads that work on it.
from libc.stdint cimport int32_t, int64_t, uint64_t

from llamad.engine.kv.slots cimport Slot, Slots
from llamad.base.pthread cimport pthread_cond_t, pthread_mutex_t, pthread_t

cdef enum Deferral:
    DEFERRAL_NONE = 0
    DEFERRAL_WANTED = 1       # the sampler thread did not get to the end
    DEFERRAL_QUEUED = 2
    DEFERRAL_RUNNING = 3      # the slot's sampler, matcher, row, probabilities and pick are the grammar thread's
    DEFERRAL_DONE = 4         # the engine takes the token in its next turn

cdef enum:
    DEFER_THREADS = 2

ctypedef struct DeferSeat:
    void *defer
    void *scratch

ctypedef struct Defer:
    pthread_mutex_t mutex     # of the queue, and of a slot's deferral up to done
    pthread_cond_t work       # the queue has something, or the pool stops
    pthread_cond_t rest       # a pick is made
    pthread_t threads[DEFER_THREADS]
    DeferSeat seats[DEFER_THREADS]
    int32_t n_threads         # 0: the system gave none, and picks are made in their step
    int32_t stopping
    Slot *first
    Slot *last
    int32_t n_vocab
    int command_fd
    int64_t work_fixed        # a test's allowance for each pick, -1: by who is there

    # Of the engine thread.
    int32_t n_out             # slots whose pick is deferred
    uint64_t n_deferred
    int64_t deferred_us

cdef Defer *defer_start(int32_t n_vocab, int command_fd, int64_t work_fixed) noexcept nogil
cdef void defer_stop(Defer *defer) noexcept nogil
cdef void defer_begin(Defer *defer, Slots *slots, const int32_t *outputs, int32_t n) noexcept nogil
cdef void defer_output(Defer *defer, Slot *slot) noexcept nogil
cdef Slot *defer_next(Defer *defer, Slots *slots) noexcept nogil
cdef void defer_drop(Defer *defer, Slot *slot) noexcept nogil
