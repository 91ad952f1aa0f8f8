# A pool of C threads that run one function over the indices of a step: the sampler threads.
from libc.stdint cimport int32_t, uint64_t

cdef extern from "pthread.h" nogil:
    ctypedef struct pthread_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_create(pthread_t *thread, void *attr, void *(*fn)(void *) noexcept nogil, void *arg)
    int pthread_join(pthread_t thread, void **result)
    int pthread_mutex_init(pthread_mutex_t *mutex, void *attr)
    int pthread_mutex_lock(pthread_mutex_t *mutex)
    int pthread_mutex_unlock(pthread_mutex_t *mutex)
    int pthread_mutex_destroy(pthread_mutex_t *mutex)
    int pthread_cond_init(pthread_cond_t *cond, void *attr)
    int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
    int pthread_cond_signal(pthread_cond_t *cond)
    int pthread_cond_broadcast(pthread_cond_t *cond)
    int pthread_cond_destroy(pthread_cond_t *cond)

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
