# Owns: the sampler threads. Rounds are begun and ended by the engine thread alone, which takes part in the work itself,
# so a pool of one has no threads at all. Workers never see Python.
#
# A round is short: 64 rows on 8 threads take less time than it takes to wake 8 threads. So where the engine waits for a
# device it begins the round before, and tells from when on there will be something to do: the threads sleep until then
# and are awake when it comes. Where even that may be too late, since decode() returns only when all is nearly done, it
# alerts them beforehand. Where the engine computes itself the cores are its own, and nobody wakes early.
#
# Indices can be awaited one by one. What an index leaves to do (`after`) nobody waits for but the next round, and
# whoever asks for it (workers_settle).
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from llamad.base.pthread cimport pthread_create, pthread_join
from llamad.base.system cimport (
    be_punctual, fetch_add_int, futex_wait, futex_wake_all, load_int, load_time, now_us, relax, sched_yield, store_int,
    store_time,
)

cdef enum:
    CLOSED = 0               # `next` between two rounds: whoever comes late finds nothing
    N_SPINS = 64             # of the caller, before it lets others have its core
    ALERT_US = 1500          # who was alerted spins so long for the round


cdef int _take_one(Workers *workers, int32_t worker) noexcept nogil:
    """Whether there was something to do."""
    # Below 0: this index counted from the round's end. Whoever reads it late cannot take it for one of a later round.
    cdef int32_t index = fetch_add_int(&workers.next, 1)
    if index >= 0:
        return 0
    index += workers.n
    workers.fn(workers.arg, index, worker)
    if index < AWAITED_MAX:
        store_int(&workers.done[index], workers.stamp)
    fetch_add_int(&workers.n_done, 1)
    if workers.after != NULL:
        workers.after(workers.arg, worker)
    fetch_add_int(&workers.n_after, 1)
    return 1


cdef void _sleep(Workers *workers, int32_t bell, int64_t timeout_us) noexcept nogil:
    fetch_add_int(&workers.n_sleeping, 1)
    futex_wait(&workers.bell, bell, timeout_us)
    fetch_add_int(&workers.n_sleeping, -1)


cdef int64_t _nap_us(const Workers *workers, int32_t seat) noexcept nogil:
    """How long somebody may sleep between two rounds; -1: until the bell."""
    cdef int64_t alert_us = load_time(&workers.alert_us), now = now_us()
    if alert_us == 0 or seat >= load_int(&workers.n_seats) or now > alert_us + ALERT_US:
        return -1
    return max(<int64_t>0, alert_us - now)


cdef void _await_round(Workers *workers, int32_t seat, int32_t seen) noexcept nogil:
    cdef int64_t early_us
    cdef int32_t bell
    while True:
        bell = load_int(&workers.bell)
        if load_int(&workers.stopping):
            return
        if load_int(&workers.round) == seen:
            early_us = _nap_us(workers, seat)
            if early_us:
                _sleep(workers, bell, early_us)
            else:
                relax()
            continue
        if seat >= load_int(&workers.n_seats):
            _sleep(workers, bell, -1)
            continue
        early_us = load_time(&workers.from_us) - now_us()
        if early_us <= 0:
            return
        _sleep(workers, bell, early_us)


cdef void *_thread_main(void *arg) noexcept nogil:
    cdef Seat *seat = <Seat *>arg
    cdef Workers *workers = <Workers *>seat.workers
    cdef int32_t seen = 0
    be_punctual()
    while True:
        _await_round(workers, seat.index, seen)
        if load_int(&workers.stopping):
            return NULL
        seen = load_int(&workers.round)
        while _take_one(workers, seat.index):
            pass


cdef void _ring(Workers *workers) noexcept nogil:
    fetch_add_int(&workers.bell, 1)
    if fetch_add_int(&workers.n_sleeping, 0) > 0:
        futex_wake_all(&workers.bell)


cdef Workers *workers_start(int32_t n_threads) noexcept nogil:
    """A pool of n_threads including the caller, or NULL. Fewer threads if the system refuses some."""
    cdef Workers *workers = <Workers *>calloc(1, sizeof(Workers))
    cdef int32_t i
    if workers == NULL:
        return NULL
    workers.next = CLOSED
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
    store_int(&workers.stopping, 1)
    _ring(workers)
    for i in range(workers.n_threads):
        pthread_join(workers.threads[i], NULL)
    free(workers)


cdef int32_t workers_count(const Workers *workers) noexcept nogil:
    return workers.n_threads + 1


cdef void workers_alert(Workers *workers, int32_t n, int64_t from_us) noexcept nogil:
    """Between two rounds: the next one is for so many indices, and likely to begin soon after this time."""
    if workers.n_threads:
        store_int(&workers.n_seats, min(n + 1, workers_count(workers)))
        store_time(&workers.alert_us, from_us)
        _ring(workers)


cdef void workers_begin(Workers *workers, WorkFn fn, AfterFn after, void *arg, int32_t n,
                        int64_t from_us) noexcept nogil:
    """Has fn(arg, i, worker) called for every i below n, from that time on; 0: at once. workers_end() must follow."""
    workers_settle(workers)
    # A thread that is late from the last round may take an index of this one: all it needs is there before `next` is.
    workers.fn = fn
    workers.after = after
    workers.arg = arg
    workers.n = n
    store_int(&workers.n_seats, workers_count(workers))
    store_time(&workers.from_us, from_us)
    store_time(&workers.alert_us, 0)
    store_int(&workers.n_done, 0)
    store_int(&workers.n_after, 0)
    workers.stamp += 1
    store_int(&workers.next, -n)
    fetch_add_int(&workers.round, 1)
    if n > 1 and workers.n_threads:
        _ring(workers)


cdef void workers_hurry(Workers *workers) noexcept nogil:
    """What the round is about is there, whatever was expected."""
    if load_time(&workers.from_us):
        store_time(&workers.from_us, 0)
        if workers.n > 1 and workers.n_threads:
            _ring(workers)


cdef void _pause(int32_t i) noexcept nogil:
    if i % N_SPINS == 0:
        sched_yield()  # more threads than cores: let the last one finish
    relax()


cdef int workers_is_done(const Workers *workers, int32_t index) noexcept nogil:
    """Of an index below AWAITED_MAX, in this round."""
    return load_int(&workers.done[index]) == workers.stamp


cdef void workers_await(Workers *workers, int32_t index) noexcept nogil:
    """Returns when an index is done, and takes part meanwhile."""
    cdef int32_t i = 0
    while not workers_is_done(workers, index):
        if load_int(&workers.next) >= 0 or not _take_one(workers, 0):
            i += 1
            _pause(i)


cdef void workers_end(Workers *workers) noexcept nogil:
    """Takes part, from now on at the latest, and returns when all calls have returned."""
    cdef int32_t i = 0
    workers_hurry(workers)
    while _take_one(workers, 0):
        pass
    while load_int(&workers.n_done) < workers.n:
        i += 1
        _pause(i)
    store_int(&workers.next, CLOSED)


cdef void workers_settle(Workers *workers) noexcept nogil:
    """After the end of a round: returns when nothing is left to do after it either."""
    cdef int32_t i = 0
    while load_int(&workers.n_after) < workers.n:
        i += 1
        _pause(i)


cdef void workers_run(Workers *workers, WorkFn fn, void *arg, int32_t n) noexcept nogil:
    """Calls fn(arg, i, worker) for every i below n and returns when all have returned."""
    workers_begin(workers, fn, NULL, arg, n, 0)
    workers_end(workers)
