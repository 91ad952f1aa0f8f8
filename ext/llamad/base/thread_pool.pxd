# C threads that start and end together, and a pool of them that works through a queue of jobs.
from libc.stdint cimport int32_t

from llamad.base.pthread cimport pthread_cond_t, pthread_mutex_t, pthread_t

cdef enum:
    THREADS_MAX = 64

ctypedef void (*ThreadFn)(void *arg, int32_t index) noexcept nogil

ctypedef struct ThreadSeat:
    ThreadFn fn
    void *arg
    int32_t index

ctypedef struct Threads:
    pthread_t ids[THREADS_MAX]
    ThreadSeat seats[THREADS_MAX]
    int32_t n

# A job is embedded in its owner, which keeps it until it is done.
ctypedef struct Job:
    Job *next
    void *owner

ctypedef void (*JobFn)(void *arg, Job *job) noexcept nogil
ctypedef void (*JobRunFn)(void *arg, Job *job, int32_t thread) noexcept nogil

ctypedef struct JobPool:
    Threads threads
    pthread_mutex_t mutex
    pthread_cond_t work       # there is a job, or the pool stops
    pthread_cond_t rest       # a job is done
    Job *first                # waiting jobs, in order
    Job *last
    int32_t n_resting
    int32_t stopping
    int32_t niceness
    void *arg                 # argument of the functions below
    JobFn on_taken            # a thread takes the job; under the mutex. May be NULL
    JobRunFn run              # the work itself
    JobFn on_done             # under the mutex

cdef void threads_start(Threads *threads, int32_t n, ThreadFn fn, void *arg) noexcept nogil
cdef void threads_join(Threads *threads) noexcept nogil

cdef void job_pool_start(JobPool *pool, int32_t n_threads) noexcept nogil
cdef Job *job_pool_stop(JobPool *pool) noexcept nogil
cdef void job_pool_add(JobPool *pool, Job *job) noexcept nogil
cdef void job_pool_lock(JobPool *pool) noexcept nogil
cdef void job_pool_unlock(JobPool *pool) noexcept nogil
cdef void job_pool_remove(JobPool *pool, Job *job) noexcept nogil
cdef void job_pool_await(JobPool *pool) noexcept nogil
