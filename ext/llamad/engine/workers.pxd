# A pool of C threads that run one function over the indices of a step: the sampler threads.
from libc.stdint cimport int32_t, int64_t

from llamad.engine.pthread cimport pthread_t

ctypedef void (*WorkFn)(void *arg, int32_t index, int32_t worker) noexcept nogil

cdef enum:
    THREADS_MAX = 64

ctypedef struct Seat:
    void *workers
    int32_t index

ctypedef struct Workers:
    pthread_t threads[THREADS_MAX]
    Seat seats[THREADS_MAX]
    int32_t n_threads        # beside the caller
    int32_t stopping
    int64_t from_us          # when there will be something to do in this round; 0: already
    WorkFn fn
    void *arg
    int32_t n
    int32_t round
    int32_t next             # the next index to take
    int32_t n_done
    int32_t bell             # changes whenever sleepers should look again
    int32_t n_sleeping
    int32_t n_seats          # threads that this round is for, the caller's included
    int64_t t_guest_us       # when somebody else last wanted a core for a moment
    int64_t t_rush_us        # and when that last was often

cdef Workers *workers_start(int32_t n_threads) noexcept nogil
cdef void workers_stop(Workers *workers) noexcept nogil
cdef int32_t workers_count(const Workers *workers) noexcept nogil
cdef void workers_begin(Workers *workers, WorkFn fn, void *arg, int32_t n, int64_t from_us) noexcept nogil
cdef void workers_end(Workers *workers) noexcept nogil
cdef void workers_run(Workers *workers, WorkFn fn, void *arg, int32_t n) noexcept nogil
cdef void workers_note_guest(Workers *workers, int64_t now) noexcept nogil
