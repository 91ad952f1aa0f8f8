# A pool of C threads that run one function over the indices of a step: the sampler threads.
from libc.stdint cimport int32_t, uint64_t

cdef extern from "pthread.h" nogil:
    ctypedef struct pthread_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass

ctypedef void (*WorkFn)(void *arg, int32_t index, int32_t worker) noexcept nogil

cdef enum:
    THREADS_MAX = 64

ctypedef struct Seat:
    void *workers
    int32_t index

ctypedef struct Workers:
    pthread_mutex_t mutex
    pthread_cond_t work      # a round has begun, or the pool stops
    pthread_cond_t rest      # the last busy thread has left the round
    pthread_t threads[THREADS_MAX]
    Seat seats[THREADS_MAX]
    int32_t n_threads        # beside the caller
    int32_t stopping
    uint64_t round
    int32_t n_busy           # threads inside the current round
    WorkFn fn
    void *arg
    int32_t n
    int32_t next             # the next index to take

cdef Workers *workers_start(int32_t n_threads) noexcept nogil
cdef void workers_stop(Workers *workers) noexcept nogil
cdef int32_t workers_count(const Workers *workers) noexcept nogil
cdef void workers_run(Workers *workers, WorkFn fn, void *arg, int32_t n) noexcept nogil
