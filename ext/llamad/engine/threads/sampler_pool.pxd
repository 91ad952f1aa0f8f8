# A pool of C threads that run one function over the indices of a step: the sampler threads.
from libc.stdint cimport int32_t, int64_t

from llamad.base.pthread cimport pthread_t

ctypedef void (*WorkFn)(void *arg, int32_t index, int32_t worker) noexcept nogil
ctypedef void (*AfterFn)(void *arg, int32_t worker) noexcept nogil

cdef enum:
    THREADS_MAX = 64
    AWAITED_MAX = 512        # indices that can be awaited one by one

ctypedef struct Seat:
    void *workers
    int32_t index

ctypedef struct Workers:
    pthread_t threads[THREADS_MAX]
    Seat seats[THREADS_MAX]
    int32_t n_threads        # beside the caller
    int32_t stopping
    int64_t from_us          # when there will be something to do in this round; 0: already
    int64_t alert_us         # when the next round is likely to begin, less a little; 0: nobody knows
    WorkFn fn
    AfterFn after            # what the same thread has to do later for the index it has done; NULL: nothing
    void *arg
    int32_t n
    int32_t round
    int32_t next             # the next index to take, less n
    int32_t n_done
    int32_t n_after          # indices that nothing is left to do for
    int32_t stamp            # of this round: set before an index can be taken, unlike `round`, which wakes threads
    int32_t done[AWAITED_MAX]  # the stamp of the round in which an index was last done
    int32_t bell             # changes whenever sleepers should look again
    int32_t n_sleeping
    int32_t n_seats          # threads that this round is for, or the one that was announced, the caller's included

cdef Workers *workers_start(int32_t n_threads) noexcept nogil
cdef void workers_stop(Workers *workers) noexcept nogil
cdef int32_t workers_count(const Workers *workers) noexcept nogil
cdef void workers_alert(Workers *workers, int32_t n, int64_t from_us) noexcept nogil
cdef void workers_begin(Workers *workers, WorkFn fn, AfterFn after, void *arg, int32_t n,
                        int64_t from_us) noexcept nogil
cdef void workers_hurry(Workers *workers) noexcept nogil
cdef int workers_is_done(const Workers *workers, int32_t index) noexcept nogil
cdef void workers_await(Workers *workers, int32_t index) noexcept nogil
cdef void workers_end(Workers *workers) noexcept nogil
cdef void workers_settle(Workers *workers) noexcept nogil
cdef void workers_run(Workers *workers, WorkFn fn, void *arg, int32_t n) noexcept nogil
