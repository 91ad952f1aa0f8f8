# Owns: the sampler threads. workers_run() is called by the engine thread alone and takes part in the work itself,
# so a pool of one has no threads at all. Workers never see Python.
from libc.stdint cimport int32_t, uint64_t
from libc.stdlib cimport calloc, free

from llamad.engine.system cimport fetch_add_int, load_int, store_int


cdef void _take_all(Workers *workers, int32_t worker) noexcept nogil:
    cdef int32_t index = fetch_add_int(&workers.next, 1)
    while index < workers.n:
        workers.fn(workers.arg, index, worker)
        index = fetch_add_int(&workers.next, 1)


cdef void *_thread_main(void *arg) noexcept nogil:
    cdef Seat *seat = <Seat *>arg
    cdef Workers *workers = <Workers *>seat.workers
    cdef uint64_t seen = 0
    pthread_mutex_lock(&workers.mutex)
    while True:
        while workers.round == seen and not workers.stopping:
            pthread_cond_wait(&workers.work, &workers.mutex)
        if workers.stopping:
            break
        seen = workers.round
        if load_int(&workers.next) >= workers.n:
            continue  # woken too late: the others have done it all
        workers.n_busy += 1
        pthread_mutex_unlock(&workers.mutex)
        _take_all(workers, seat.index)
        pthread_mutex_lock(&workers.mutex)
        workers.n_busy -= 1
        if workers.n_busy == 0:
            pthread_cond_signal(&workers.rest)
    pthread_mutex_unlock(&workers.mutex)
    return NULL


cdef Workers *workers_start(int32_t n_threads) noexcept nogil:
    """A pool of n_threads including the caller, or NULL. Fewer threads if the system refuses some."""
    cdef Workers *workers = <Workers *>calloc(1, sizeof(Workers))
    cdef int32_t i
    if workers == NULL:
        return NULL
    pthread_mutex_init(&workers.mutex, NULL)
    pthread_cond_init(&workers.work, NULL)
    pthread_cond_init(&workers.rest, NULL)
    for i in range(min(n_threads - 1, <int32_t>THREADS_MAX)):
        workers.seats[i].workers = workers
        workers.seats[i].index = i + 1
        if pthread_create(&workers.threads[i], NULL, _thread_main, &workers.seats[i]) != 0:
            break
        workers.n_threads += 1
    return workers


cdef void workers_stop(Workers *workers) noexcept nogil:
    cdef int32_t i
    if workers == NULL:
        return
    pthread_mutex_lock(&workers.mutex)
    workers.stopping = 1
    pthread_cond_broadcast(&workers.work)
    pthread_mutex_unlock(&workers.mutex)
    for i in range(workers.n_threads):
        pthread_join(workers.threads[i], NULL)
    pthread_cond_destroy(&workers.work)
    pthread_cond_destroy(&workers.rest)
    pthread_mutex_destroy(&workers.mutex)
    free(workers)


cdef int32_t workers_count(const Workers *workers) noexcept nogil:
    return workers.n_threads + 1


cdef void workers_run(Workers *workers, WorkFn fn, void *arg, int32_t n) noexcept nogil:
    """Calls fn(arg, i, worker) for every i below n and returns when all have returned."""
    cdef int32_t i
    if n <= 1 or workers.n_threads == 0:
        for i in range(n):
            fn(arg, i, 0)
        return
    pthread_mutex_lock(&workers.mutex)
    workers.fn = fn
    workers.arg = arg
    workers.n = n
    store_int(&workers.next, 0)
    workers.round += 1
    pthread_cond_broadcast(&workers.work)
    pthread_mutex_unlock(&workers.mutex)
    _take_all(workers, 0)
    pthread_mutex_lock(&workers.mutex)
    while workers.n_busy > 0:
        pthread_cond_wait(&workers.rest, &workers.mutex)
    pthread_mutex_unlock(&workers.mutex)
