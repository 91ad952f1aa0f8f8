# Owns: how threads that never see Python start, wait for work and stop. Sampler threads have their own rounds
# (engine/threads/sampler_pool.pyx) and use only Threads; grammar and tokenizer threads are a JobPool each.
from libc.stdint cimport int32_t

from llamad.base.pthread cimport (
    pthread_cond_broadcast, pthread_cond_destroy, pthread_cond_init, pthread_cond_signal, pthread_cond_wait,
    pthread_create, pthread_join, pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)
from llamad.base.system cimport be_nice


cdef void *_thread_main(void *arg) noexcept nogil:
    cdef ThreadSeat *seat = <ThreadSeat *>arg
    seat.fn(seat.arg, seat.index)
    return NULL


cdef void threads_start(Threads *threads, int32_t n, ThreadFn fn, void *arg) noexcept nogil:
    """Start n threads that call fn(arg, index). If the system refuses some, threads.n is less than n."""
    threads.n = 0
    while threads.n < min(n, <int32_t>THREADS_MAX):
        threads.seats[threads.n].fn = fn
        threads.seats[threads.n].arg = arg
        threads.seats[threads.n].index = threads.n
        if pthread_create(&threads.ids[threads.n], NULL, _thread_main, &threads.seats[threads.n]) != 0:
            break
        threads.n += 1


cdef void threads_join(Threads *threads) noexcept nogil:
    """Wait until every thread has returned; the caller has told them to stop."""
    cdef int32_t i
    for i in range(threads.n):
        pthread_join(threads.ids[i], NULL)
    threads.n = 0


# --- a queue of jobs --------------------------------------------------------------------------------------------

cdef Job *_take(JobPool *pool) noexcept nogil:
    """Remove and return the first job of the queue. Call under the mutex."""
    cdef Job *job = pool.first
    pool.first = job.next
    if pool.first == NULL:
        pool.last = NULL
    job.next = NULL
    return job


cdef void _work(void *arg, int32_t index) noexcept nogil:
    cdef JobPool *pool = <JobPool *>arg
    cdef Job *job
    if pool.niceness:
        be_nice(pool.niceness)
    pthread_mutex_lock(&pool.mutex)
    while True:
        while pool.first == NULL and not pool.stopping:
            pool.n_resting += 1
            pthread_cond_wait(&pool.work, &pool.mutex)
            pool.n_resting -= 1
        if pool.stopping:
            break
        job = _take(pool)
        if pool.on_taken != NULL:
            pool.on_taken(pool.arg, job)
        pthread_mutex_unlock(&pool.mutex)
        pool.run(pool.arg, job, index)
        pthread_mutex_lock(&pool.mutex)
        pool.on_done(pool.arg, job)
        pthread_cond_signal(&pool.rest)
    pthread_mutex_unlock(&pool.mutex)


cdef void job_pool_start(JobPool *pool, int32_t n_threads) noexcept nogil:
    """Start the threads. The pool must be zeroed except for its functions, their argument and the niceness. Afterwards
    there are pool.threads.n threads, possibly none."""
    pthread_mutex_init(&pool.mutex, NULL)
    pthread_cond_init(&pool.work, NULL)
    pthread_cond_init(&pool.rest, NULL)
    threads_start(&pool.threads, n_threads, _work, pool)


cdef Job *job_pool_stop(JobPool *pool) noexcept nogil:
    """End the threads after their current jobs. Return the list of jobs that were not begun."""
    pthread_mutex_lock(&pool.mutex)
    pool.stopping = 1
    pthread_cond_broadcast(&pool.work)
    pthread_mutex_unlock(&pool.mutex)
    threads_join(&pool.threads)
    pthread_cond_destroy(&pool.work)
    pthread_cond_destroy(&pool.rest)
    pthread_mutex_destroy(&pool.mutex)
    return pool.first


cdef void job_pool_add(JobPool *pool, Job *job) noexcept nogil:
    """Append a job to the queue. Call under the mutex."""
    job.next = NULL
    if pool.last != NULL:
        pool.last.next = job
    else:
        pool.first = job
    pool.last = job
    if pool.n_resting > 0:
        pthread_cond_signal(&pool.work)


cdef void job_pool_lock(JobPool *pool) noexcept nogil:
    pthread_mutex_lock(&pool.mutex)


cdef void job_pool_unlock(JobPool *pool) noexcept nogil:
    pthread_mutex_unlock(&pool.mutex)


cdef void job_pool_remove(JobPool *pool, Job *job) noexcept nogil:
    """Remove a waiting job from the queue. Call under the mutex."""
    cdef Job *before = pool.first
    if before == job:
        _take(pool)
        return
    while before.next != job:
        before = before.next
    before.next = job.next
    if pool.last == job:
        pool.last = before


cdef void job_pool_await(JobPool *pool) noexcept nogil:
    """Wait until a job is done; may return early. Call under the mutex, which is released while waiting."""
    pthread_cond_wait(&pool.rest, &pool.mutex)
