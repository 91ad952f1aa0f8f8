# Owns: the sampler threads. Only the engine thread begins and ends rounds, and it takes part in them, so that a pool of
# one has no threads. The threads never see Python.
#
# A round is short: 64 rows on 8 threads take less time than waking 8 threads. So if the engine waits for a GPU, it
# begins the round early and says from when on there is work: the threads sleep until then. If even that is too late,
# because decode() returns only when everything is nearly done, it alerts them before. On a CPU the cores belong to
# llama.cpp, and no thread wakes early.
#
# Indices can be awaited one by one. Only the next round and sampler_pool_drain() wait for what is left to do for an
# index (`after`).
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from llamad.base.system cimport (
    be_punctual, fetch_add_int, futex_wait, futex_wake_all, load_int, load_time, now_us, relax, sched_yield, store_int,
    store_time,
)
from llamad.base.thread_pool cimport threads_join, threads_start
from llamad.engine.costs.sampler cimport ALERT_SPIN_US, SPINS_BEFORE_YIELD

cdef enum:
    CLOSED = 0               # `next` between two rounds, so that a late thread finds nothing


cdef int _take_one(SamplerPool *pool, int32_t worker) noexcept nogil:
    """Take an index and do its work. Return whether there was one."""
    # Below 0 it counts from the end of the round, so that a late thread cannot take it for an index of a later round.
    cdef int32_t index = fetch_add_int(&pool.next, 1)
    if index >= 0:
        return 0
    index += pool.n
    pool.fn(pool.arg, index, worker)
    if index < AWAITED_MAX:
        store_int(&pool.done[index], pool.stamp)
    fetch_add_int(&pool.n_done, 1)
    if pool.after != NULL:
        pool.after(pool.arg, worker)
    fetch_add_int(&pool.n_after, 1)
    return 1


cdef void _sleep(SamplerPool *pool, int32_t bell, int64_t timeout_us) noexcept nogil:
    fetch_add_int(&pool.n_sleeping, 1)
    futex_wait(&pool.bell, bell, timeout_us)
    fetch_add_int(&pool.n_sleeping, -1)


cdef int64_t _nap_us(const SamplerPool *pool, int32_t seat) noexcept nogil:
    """Return how long a thread may sleep between two rounds; -1: until the bell rings."""
    cdef int64_t alert_us = load_time(&pool.alert_us), now = now_us()
    if alert_us == 0 or seat >= load_int(&pool.n_seats) or now > alert_us + ALERT_SPIN_US:
        return -1
    return max(<int64_t>0, alert_us - now)


cdef void _await_round(SamplerPool *pool, int32_t seat, int32_t seen) noexcept nogil:
    cdef int64_t early_us
    cdef int32_t bell
    while True:
        bell = load_int(&pool.bell)
        if load_int(&pool.stopping):
            return
        if load_int(&pool.round) == seen:
            early_us = _nap_us(pool, seat)
            if early_us:
                _sleep(pool, bell, early_us)
            else:
                relax()
            continue
        if seat >= load_int(&pool.n_seats):
            _sleep(pool, bell, -1)
            continue
        early_us = load_time(&pool.from_us) - now_us()
        if early_us <= 0:
            return
        _sleep(pool, bell, early_us)


cdef void _work(void *arg, int32_t index) noexcept nogil:
    cdef SamplerPool *pool = <SamplerPool *>arg
    cdef int32_t seat = index + 1, seen = 0  # the caller has seat 0
    be_punctual()
    while True:
        _await_round(pool, seat, seen)
        if load_int(&pool.stopping):
            return
        seen = load_int(&pool.round)
        while _take_one(pool, seat):
            pass


cdef void _ring(SamplerPool *pool) noexcept nogil:
    fetch_add_int(&pool.bell, 1)
    if fetch_add_int(&pool.n_sleeping, 0) > 0:
        futex_wake_all(&pool.bell)


cdef SamplerPool *sampler_pool_start(int32_t n_threads) noexcept nogil:
    """Return a pool of n_threads including the caller, or NULL. It has fewer threads if the system refuses some."""
    cdef SamplerPool *pool = <SamplerPool *>calloc(1, sizeof(SamplerPool))
    if pool == NULL:
        return NULL
    pool.next = CLOSED
    threads_start(&pool.threads, n_threads - 1, _work, pool)
    return pool


cdef void sampler_pool_stop(SamplerPool *pool) noexcept nogil:
    if pool == NULL:
        return
    store_int(&pool.stopping, 1)
    _ring(pool)
    threads_join(&pool.threads)
    free(pool)


cdef int32_t sampler_pool_count(const SamplerPool *pool) noexcept nogil:
    return pool.threads.n + 1


cdef void sampler_pool_alert(SamplerPool *pool, int32_t n, int64_t from_us) noexcept nogil:
    """Announce that the next round has n indices and is likely to begin soon after this time. Call between rounds."""
    if pool.threads.n:
        store_int(&pool.n_seats, min(n + 1, sampler_pool_count(pool)))
        store_time(&pool.alert_us, from_us)
        _ring(pool)


cdef void sampler_pool_begin(SamplerPool *pool, WorkFn fn, AfterFn after, void *arg, int32_t n,
                             int64_t from_us) noexcept nogil:
    """Start a round that calls fn(arg, i, worker) for every i below n, from the time from_us on; 0: at once.
    sampler_pool_end() must follow."""
    sampler_pool_drain(pool)
    # A late thread of the last round may take an index of this one, so everything it needs is set before `next`.
    pool.fn = fn
    pool.after = after
    pool.arg = arg
    pool.n = n
    store_int(&pool.n_seats, sampler_pool_count(pool))
    store_time(&pool.from_us, from_us)
    store_time(&pool.alert_us, 0)
    store_int(&pool.n_done, 0)
    store_int(&pool.n_after, 0)
    pool.stamp += 1
    store_int(&pool.next, -n)
    fetch_add_int(&pool.round, 1)
    if n > 1 and pool.threads.n:
        _ring(pool)


cdef void sampler_pool_hurry(SamplerPool *pool) noexcept nogil:
    """Tell the threads that there is work now, whatever was expected."""
    if load_time(&pool.from_us):
        store_time(&pool.from_us, 0)
        if pool.n > 1 and pool.threads.n:
            _ring(pool)


cdef void _pause(int32_t i) noexcept nogil:
    if i % SPINS_BEFORE_YIELD == 0:
        sched_yield()  # more threads than cores: let the last one finish
    relax()


cdef int sampler_pool_is_done(const SamplerPool *pool, int32_t index) noexcept nogil:
    """Return whether an index below AWAITED_MAX is done in this round."""
    return load_int(&pool.done[index]) == pool.stamp


cdef void sampler_pool_await(SamplerPool *pool, int32_t index) noexcept nogil:
    """Wait until an index is done, and take part meanwhile."""
    cdef int32_t i = 0
    while not sampler_pool_is_done(pool, index):
        if load_int(&pool.next) >= 0 or not _take_one(pool, 0):
            i += 1
            _pause(i)


cdef void sampler_pool_end(SamplerPool *pool) noexcept nogil:
    """Take part in the round, and wait until all calls have returned."""
    cdef int32_t i = 0
    sampler_pool_hurry(pool)
    while _take_one(pool, 0):
        pass
    while load_int(&pool.n_done) < pool.n:
        i += 1
        _pause(i)
    store_int(&pool.next, CLOSED)


cdef void sampler_pool_drain(SamplerPool *pool) noexcept nogil:
    """Wait until no thread has anything left to do for a round that has ended."""
    cdef int32_t i = 0
    while load_int(&pool.n_after) < pool.n:
        i += 1
        _pause(i)


cdef void sampler_pool_run(SamplerPool *pool, WorkFn fn, void *arg, int32_t n) noexcept nogil:
    """Call fn(arg, i, worker) for every i below n and wait until all have returned."""
    sampler_pool_begin(pool, fn, NULL, arg, n, 0)
    sampler_pool_end(pool)
