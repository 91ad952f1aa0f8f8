# Owns: the sampler threads. Only the engine thread begins and ends rounds, and it takes part in them, so that a pool of
# one has no threads. The threads never see Python.
#
# A round is short: 64 rows on 8 threads take less time than waking 8 threads. So if the engine waits for a GPU, it
# begins the round early and says from when on there is work: the threads sleep until then. If even that is too late,
# because decode() returns only when everything is nearly done, it alerts them before. On a CPU the cores belong to
# llama.cpp, and no thread wakes early.
#
# Indices can be awaited one by one. Only the next round and sampler_pool_drain() wait for what is left to do for an
# index (`after`). The thread that did the index does that too, in parts; threads without an index, and the engine when
# it has to wait, take parts from it.
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from llamad.base.system cimport (
    be_punctual, fetch_add_int, futex_wait, futex_wake_all, load_int, load_time, now_us, relax, sched_yield, sleep_us,
    store_int, store_time,
)
from llamad.base.thread_pool cimport threads_join, threads_start
from llamad.engine.costs.sampler cimport AFTER_SPIN_US, ALERT_SPIN_US, ARRIVAL_NAP_US, SPINS_BEFORE_YIELD

cdef enum:
    CLOSED = 0               # `next` between two rounds, so that a late thread finds nothing


cdef void _take_parts(SamplerPool *pool, int32_t index) noexcept nogil:
    """Do what is left to do for an index, as far as no other thread does it."""
    cdef int32_t part
    # A part can be taken only in a round that still waits for it, so a late thread finds the fields of that round.
    while load_int(&pool.next_part[index]) < AFTER_PARTS:
        part = fetch_add_int(&pool.next_part[index], 1)
        if part < AFTER_PARTS:
            pool.after(pool.arg, index, part)
            fetch_add_int(&pool.n_after, 1)


cdef void _take_others_parts(SamplerPool *pool) noexcept nogil:
    """Help with what is left to do for indices that other threads did. The last ones are the least finished."""
    cdef int32_t index
    for index in range(min(pool.n, <int32_t>AWAITED_MAX) - 1, -1, -1):
        _take_parts(pool, index)


cdef int _take_one(SamplerPool *pool, int32_t worker) noexcept nogil:
    """Take an index and do its work. Return whether there was one."""
    # Below 0 it counts from the end of the round, so that a late thread cannot take it for an index of a later round.
    cdef int32_t index = fetch_add_int(&pool.next, 1)
    if index >= 0:
        return 0
    index += pool.n
    pool.fn(pool.arg, index, worker)
    if pool.after != NULL:
        store_int(&pool.next_part[index], 0)
    else:
        fetch_add_int(&pool.n_after, AFTER_PARTS)
    if index < AWAITED_MAX:
        store_int(&pool.done[index], pool.stamp)
    fetch_add_int(&pool.n_done, 1)
    if worker:  # the caller has more urgent things to do
        _take_parts(pool, index)
    return 1


cdef void _sleep(SamplerPool *pool, int32_t seat, int32_t bell, int64_t timeout_us) noexcept nogil:
    cdef int32_t i = seat >= NEAR_SEATS
    fetch_add_int(&pool.n_sleeping[i], 1)
    futex_wait(&pool.bells[i], bell, timeout_us)
    fetch_add_int(&pool.n_sleeping[i], -1)


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
        bell = load_int(&pool.bells[seat >= NEAR_SEATS])
        if load_int(&pool.stopping):
            return
        if load_int(&pool.round) == seen:
            early_us = _nap_us(pool, seat)
            if early_us:
                _sleep(pool, seat, bell, early_us)
            else:
                relax()
            continue
        if seat >= load_int(&pool.n_seats):
            _sleep(pool, seat, bell, -1)
            continue
        early_us = load_time(&pool.from_us) - now_us()
        if early_us <= 0:
            return
        _sleep(pool, seat, bell, early_us)


cdef void _await_gate(SamplerPool *pool) noexcept nogil:
    while load_int(&pool.is_gated) and not load_int(pool.gate) and not load_int(&pool.stopping):
        if now_us() > load_time(&pool.gate_spin_us):
            sleep_us(ARRIVAL_NAP_US)
        relax()


cdef void _help(SamplerPool *pool) noexcept nogil:
    """Help the last threads of the round, which take long only if a grammar does."""
    cdef int64_t t_end
    if pool.after == NULL:
        return
    t_end = now_us() + AFTER_SPIN_US
    while load_int(&pool.n_after) < AFTER_PARTS * pool.n and now_us() < t_end:
        _take_others_parts(pool)
        relax()


cdef void _work(void *arg, int32_t index) noexcept nogil:
    cdef SamplerPool *pool = <SamplerPool *>arg
    cdef int32_t seat = index + 1, seen = 0  # the caller has seat 0
    be_punctual()
    while True:
        _await_round(pool, seat, seen)
        if load_int(&pool.stopping):
            return
        seen = load_int(&pool.round)
        _await_gate(pool)
        while _take_one(pool, seat):
            pass
        _help(pool)


cdef void _ring(SamplerPool *pool, int32_t n_seats) noexcept nogil:
    cdef int32_t i
    for i in range(2 if n_seats > NEAR_SEATS else 1):
        fetch_add_int(&pool.bells[i], 1)
        if fetch_add_int(&pool.n_sleeping[i], 0) > 0:
            futex_wake_all(&pool.bells[i])


cdef SamplerPool *sampler_pool_start(int32_t n_threads) noexcept nogil:
    """Return a pool of n_threads including the caller, or NULL. It has fewer threads if the system refuses some."""
    cdef SamplerPool *pool = <SamplerPool *>calloc(1, sizeof(SamplerPool))
    cdef int32_t i
    if pool == NULL:
        return NULL
    pool.next = CLOSED
    for i in range(AWAITED_MAX):
        pool.next_part[i] = AFTER_PARTS
    threads_start(&pool.threads, n_threads - 1, _work, pool)
    return pool


cdef void sampler_pool_stop(SamplerPool *pool) noexcept nogil:
    if pool == NULL:
        return
    store_int(&pool.stopping, 1)
    _ring(pool, sampler_pool_count(pool))
    threads_join(&pool.threads)
    free(pool)


cdef int32_t sampler_pool_count(const SamplerPool *pool) noexcept nogil:
    return pool.threads.n + 1


cdef void sampler_pool_alert(SamplerPool *pool, int32_t n, int64_t from_us) noexcept nogil:
    """Announce that the next round has n indices and is likely to begin soon after this time. Call between rounds."""
    if pool.threads.n:
        store_int(&pool.n_seats, min(n + 1, sampler_pool_count(pool)))
        store_time(&pool.alert_us, from_us)
        _ring(pool, pool.n_seats)


cdef void _begin(SamplerPool *pool, WorkFn fn, AfterFn after, void *arg, int32_t n, int64_t from_us,
                 int32_t n_seats) noexcept nogil:
    sampler_pool_drain(pool)
    # A late thread of the last round may take an index of this one, so everything it needs is set before `next`.
    pool.fn = fn
    pool.after = after
    pool.arg = arg
    pool.n = n
    store_int(&pool.n_seats, n_seats)
    store_time(&pool.from_us, from_us)
    store_time(&pool.alert_us, 0)
    store_int(&pool.n_done, 0)
    store_int(&pool.n_after, 0)
    pool.stamp += 1
    store_int(&pool.next, -n)
    fetch_add_int(&pool.round, 1)
    if n > 1 and pool.threads.n:
        _ring(pool, n_seats)


cdef void sampler_pool_begin(SamplerPool *pool, WorkFn fn, AfterFn after, void *arg, int32_t n,
                             int64_t from_us) noexcept nogil:
    """Start a round that calls fn(arg, i, worker) for every i below n, from the time from_us on; 0: at once.
    sampler_pool_end() must follow. With `after`, n is at most AWAITED_MAX."""
    store_int(&pool.is_gated, 0)
    _begin(pool, fn, after, arg, n, from_us, sampler_pool_count(pool))


cdef void sampler_pool_begin_gated(SamplerPool *pool, WorkFn fn, void *arg, int32_t n, const int32_t *gate,
                                   int64_t from_us, int64_t spin_us) noexcept nogil:
    """Start a small round for a few threads. From the time from_us on they wait until `gate` is set, spinning until the
    time spin_us. A thread that is late then has no index that the caller would have to wait for."""
    pool.gate = gate
    store_time(&pool.gate_spin_us, spin_us)
    store_int(&pool.is_gated, 1)
    _begin(pool, fn, NULL, arg, n, from_us, min(<int32_t>NEAR_SEATS, sampler_pool_count(pool)))


cdef void sampler_pool_hurry(SamplerPool *pool) noexcept nogil:
    """Tell the threads that there is work now, whatever was expected. Nobody is woken if all work is taken, or for a
    gated round, which the caller would finish first."""
    if load_time(&pool.from_us):
        store_time(&pool.from_us, 0)
        if pool.n > 1 and pool.threads.n and load_int(&pool.next) < 0 and not pool.is_gated:
            _ring(pool, pool.n_seats)


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
    """Wait until nothing is left to do for a round that has ended, and take part in it."""
    cdef int32_t i = 0
    while load_int(&pool.n_after) < AFTER_PARTS * pool.n:
        _take_others_parts(pool)
        i += 1
        _pause(i)


cdef void sampler_pool_run(SamplerPool *pool, WorkFn fn, void *arg, int32_t n) noexcept nogil:
    """Call fn(arg, i, worker) for every i below n and wait until all have returned."""
    sampler_pool_begin(pool, fn, NULL, arg, n, 0)
    sampler_pool_end(pool)
