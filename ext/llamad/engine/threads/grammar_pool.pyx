# Owns: the grammar threads and the picks they finish. Everything but _thread_main runs on the engine thread. The
# threads never see Python, and touch of a slot only what belongs to its pick.
#
# In the step a grammar may do little work, for everybody waits. A pick that needs more leaves the step with a copy of
# its logits; its slot sits out the steps until a grammar thread has made it. First come, first served; each pick is
# bounded by the work its matcher has left.
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc

from llamad.grammar.grammar cimport matcher_cancel, matcher_set_allowance
from llamad.engine.threads.slot_sample cimport slot_pick_rest
from llamad.engine.sampler.sampler cimport sampler_scratch_bytes
from llamad.engine.kv.slots cimport SLOT_IDLE, Slot, Slots
from llamad.base.system cimport be_nice, load_int, now_us, store_int, wake_send
from llamad.base.pthread cimport (
    pthread_cond_broadcast, pthread_cond_destroy, pthread_cond_init, pthread_cond_signal, pthread_cond_wait,
    pthread_create, pthread_join, pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)

cdef enum:
    # Work in edges, about 40 ns each. What all grammars of a step may do in it together.
    STEP_WORK = 10000
    # Where no other slot is active only a newcomer could be kept waiting.
    ALONE_WORK = 250000
    # Below the engine: llama.cpp's threads wait for each other, so one that is held up holds up all.
    NICENESS = 5


cdef Slot *_first_out(Defer *defer) noexcept nogil:
    """Takes the next pick out of the queue, or NULL. Under the mutex."""
    cdef Slot *slot = defer.first
    if slot != NULL:
        defer.first = slot.next_deferred
        if defer.first == NULL:
            defer.last = NULL
    return slot


cdef void *_thread_main(void *arg) noexcept nogil:
    cdef DeferSeat *seat = <DeferSeat *>arg
    cdef Defer *defer = <Defer *>seat.defer
    cdef Slot *slot
    be_nice(NICENESS)
    pthread_mutex_lock(&defer.mutex)
    while True:
        while defer.first == NULL and not defer.stopping:
            pthread_cond_wait(&defer.work, &defer.mutex)
        if defer.stopping:
            break
        slot = _first_out(defer)
        store_int(&slot.deferral, DEFERRAL_RUNNING)
        pthread_mutex_unlock(&defer.mutex)
        slot_pick_rest(slot, seat.scratch)
        pthread_mutex_lock(&defer.mutex)
        store_int(&slot.deferral, DEFERRAL_DONE)
        pthread_cond_signal(&defer.rest)
        wake_send(defer.command_fd)
    pthread_mutex_unlock(&defer.mutex)
    return NULL


cdef Defer *defer_start(int32_t n_vocab, int command_fd, int64_t work_fixed) noexcept nogil:
    """The pool, or NULL without memory. Fewer threads if the system refuses some."""
    cdef Defer *defer = <Defer *>calloc(1, sizeof(Defer))
    cdef DeferSeat *seat
    cdef int32_t i
    if defer == NULL:
        return NULL
    pthread_mutex_init(&defer.mutex, NULL)
    pthread_cond_init(&defer.work, NULL)
    pthread_cond_init(&defer.rest, NULL)
    defer.n_vocab = n_vocab
    defer.command_fd = command_fd
    defer.work_fixed = work_fixed
    for i in range(DEFER_THREADS):
        seat = &defer.seats[i]
        seat.defer = defer
        seat.scratch = malloc(sampler_scratch_bytes(n_vocab))
        if seat.scratch == NULL:
            defer_stop(defer)
            return NULL
        if pthread_create(&defer.threads[i], NULL, _thread_main, seat) != 0:
            break
        defer.n_threads += 1
    return defer


cdef void defer_stop(Defer *defer) noexcept nogil:
    """The engine thread has ended, and with it every task."""
    cdef int32_t i
    if defer == NULL:
        return
    pthread_mutex_lock(&defer.mutex)
    defer.stopping = 1
    pthread_cond_broadcast(&defer.work)
    pthread_mutex_unlock(&defer.mutex)
    for i in range(defer.n_threads):
        pthread_join(defer.threads[i], NULL)
    for i in range(DEFER_THREADS):
        free(defer.seats[i].scratch)
    pthread_cond_destroy(&defer.work)
    pthread_cond_destroy(&defer.rest)
    pthread_mutex_destroy(&defer.mutex)
    free(defer)


# --- in the step ----------------------------------------------------------------------------------------------

cdef int64_t _allowance(const Defer *defer, const Slots *slots, int32_t n_matchers) noexcept nogil:
    """For each of the grammars in this step."""
    cdef int32_t i, n_active = 0
    if defer.n_threads == 0:
        return -1
    if defer.work_fixed >= 0:
        return defer.work_fixed
    for i in range(slots.n):
        n_active += slots.items[i].state != SLOT_IDLE
    return ALONE_WORK if n_active == 1 else STEP_WORK // n_matchers


cdef void defer_begin(Defer *defer, Slots *slots, const int32_t *outputs, int32_t n) noexcept nogil:
    """Before the picks of a step: how much their grammars may do."""
    cdef int32_t i, n_matchers = 0
    cdef int64_t work
    for i in range(n):
        n_matchers += slots.items[outputs[i]].matcher != NULL
    if n_matchers == 0:
        return
    work = _allowance(defer, slots, n_matchers)
    for i in range(n):
        if slots.items[outputs[i]].matcher != NULL:
            matcher_set_allowance(slots.items[outputs[i]].matcher, work)


cdef void _add(Defer *defer, Slot *slot) noexcept nogil:
    slot.next_deferred = NULL
    slot.t_deferred_us = now_us()
    defer.n_deferred += 1
    defer.n_out += 1
    pthread_mutex_lock(&defer.mutex)
    store_int(&slot.deferral, DEFERRAL_QUEUED)
    if defer.last != NULL:
        defer.last.next_deferred = slot
    else:
        defer.first = slot
    defer.last = slot
    pthread_cond_signal(&defer.work)
    pthread_mutex_unlock(&defer.mutex)


cdef void defer_output(Defer *defer, Slot *slot) noexcept nogil:
    """After the picks of a step: hands over a slot whose pick did not get to its end."""
    if slot.deferral:
        _add(defer, slot)


# --- afterwards -----------------------------------------------------------------------------------------------

cdef void _is_back(Defer *defer, Slot *slot) noexcept nogil:
    store_int(&slot.deferral, DEFERRAL_NONE)
    defer.n_out -= 1
    defer.deferred_us += now_us() - slot.t_deferred_us


cdef Slot *defer_next(Defer *defer, Slots *slots) noexcept nogil:
    """A slot whose pick is made, and the engine's again; or NULL."""
    cdef int32_t i
    if defer.n_out:
        for i in range(slots.n):
            if load_int(&slots.items[i].deferral) == DEFERRAL_DONE:
                _is_back(defer, &slots.items[i])
                return &slots.items[i]
    return NULL


cdef void _take_out(Defer *defer, Slot *slot) noexcept nogil:
    """Out of the middle of the queue. Under the mutex."""
    cdef Slot *before = defer.first
    if before == slot:
        _first_out(defer)
        return
    while before.next_deferred != slot:
        before = before.next_deferred
    before.next_deferred = slot.next_deferred
    if defer.last == slot:
        defer.last = before


cdef void defer_drop(Defer *defer, Slot *slot) noexcept nogil:
    """The slot's task ends: nobody works on its pick any more. One that runs is cancelled and is over soon."""
    if not load_int(&slot.deferral):
        return
    pthread_mutex_lock(&defer.mutex)
    if load_int(&slot.deferral) == DEFERRAL_QUEUED:
        _take_out(defer, slot)
    elif load_int(&slot.deferral) == DEFERRAL_RUNNING:
        matcher_cancel(slot.matcher)
        while load_int(&slot.deferral) == DEFERRAL_RUNNING:
            pthread_cond_wait(&defer.rest, &defer.mutex)
    pthread_mutex_unlock(&defer.mutex)
    _is_back(defer, slot)
