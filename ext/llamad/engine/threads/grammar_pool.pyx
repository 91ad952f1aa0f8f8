# Owns: the grammar threads and the sampling that they finish. Everything but _on_taken, _run and _on_done runs on the
# engine thread. The threads never see Python, and touch only the fields of a slot that belong to its sampling.
#
# In a step a grammar may do little work, because every slot waits for it. A slot whose grammar needs more leaves the
# step with a copy of its logits, and sits out the following steps until a grammar thread has sampled its token. First
# come, first served; the work for each token is bounded by what its matcher has left.
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc

from llamad.base.system cimport load_int, now_us, store_int, wake_send
from llamad.base.thread_pool cimport (
    Job, job_pool_add, job_pool_await, job_pool_lock, job_pool_remove, job_pool_start, job_pool_stop, job_pool_unlock,
)
from llamad.engine.costs.sampler cimport GRAMMAR_ALONE_WORK, GRAMMAR_NICENESS, GRAMMAR_STEP_WORK
from llamad.engine.kv.slots cimport (
    DEFERRAL_DONE, DEFERRAL_NONE, DEFERRAL_QUEUED, DEFERRAL_RUNNING, DEFERRAL_WANTED, SLOT_IDLE, Slot, Slots,
)
from llamad.engine.sampler.sampler cimport sampler_scratch_bytes
from llamad.engine.threads.slot_sample cimport slot_sample_rest
from llamad.grammar.grammar cimport matcher_cancel, matcher_set_allowance


cdef void _on_taken(void *arg, Job *job) noexcept nogil:
    store_int(&(<Slot *>job.owner).deferral, DEFERRAL_RUNNING)


cdef void _run(void *arg, Job *job, int32_t thread) noexcept nogil:
    slot_sample_rest(<Slot *>job.owner, (<GrammarPool *>arg).scratch[thread])


cdef void _on_done(void *arg, Job *job) noexcept nogil:
    store_int(&(<Slot *>job.owner).deferral, DEFERRAL_DONE)
    wake_send((<GrammarPool *>arg).command_fd)


cdef GrammarPool *grammar_pool_start(int32_t n_vocab, int command_fd, int64_t work_fixed) noexcept nogil:
    """Return the pool, or NULL if memory ran out. If the system refuses threads, every token is sampled in its step."""
    cdef GrammarPool *pool = <GrammarPool *>calloc(1, sizeof(GrammarPool))
    cdef int32_t i
    if pool == NULL:
        return NULL
    pool.command_fd = command_fd
    pool.work_fixed = work_fixed
    pool.jobs.arg = pool
    pool.jobs.on_taken = _on_taken
    pool.jobs.run = _run
    pool.jobs.on_done = _on_done
    pool.jobs.niceness = GRAMMAR_NICENESS
    for i in range(GRAMMAR_THREADS):
        pool.scratch[i] = malloc(sampler_scratch_bytes(n_vocab))
        if pool.scratch[i] == NULL:
            _free(pool)
            return NULL
    job_pool_start(&pool.jobs, GRAMMAR_THREADS)
    return pool


cdef void _free(GrammarPool *pool) noexcept nogil:
    cdef int32_t i
    for i in range(GRAMMAR_THREADS):
        free(pool.scratch[i])
    free(pool)


cdef void grammar_pool_stop(GrammarPool *pool) noexcept nogil:
    """Stop the threads and free the pool, after the engine thread has ended with every task."""
    if pool != NULL:
        job_pool_stop(&pool.jobs)
        _free(pool)


# --- in the step ----------------------------------------------------------------------------------------------

cdef int64_t _allowance(const GrammarPool *pool, const Slots *slots, int32_t n_matchers) noexcept nogil:
    """Return the work that each grammar may do in this step."""
    cdef int32_t i, n_active = 0
    if pool.jobs.threads.n == 0:
        return -1
    if pool.work_fixed >= 0:
        return pool.work_fixed
    for i in range(slots.n):
        n_active += slots.items[i].state != SLOT_IDLE
    return GRAMMAR_ALONE_WORK if n_active == 1 else GRAMMAR_STEP_WORK // n_matchers


cdef void grammar_pool_begin(GrammarPool *pool, Slots *slots, const int32_t *outputs, int32_t n) noexcept nogil:
    """Set the allowances of the grammars. Call before a step is sampled."""
    cdef int32_t i, n_matchers = 0
    cdef int64_t work
    for i in range(n):
        n_matchers += slots.items[outputs[i]].matcher != NULL
    if n_matchers == 0:
        return
    work = _allowance(pool, slots, n_matchers)
    for i in range(n):
        if slots.items[outputs[i]].matcher != NULL:
            matcher_set_allowance(slots.items[outputs[i]].matcher, work)


cdef void grammar_pool_add(GrammarPool *pool, Slot *slot) noexcept nogil:
    """Put a slot whose grammar needs more work into the queue. Call after a step is sampled."""
    if not slot.deferral:
        return
    slot.deferred.owner = slot
    slot.t_deferred_us = now_us()
    pool.n_deferred += 1
    pool.n_out += 1
    job_pool_lock(&pool.jobs)
    store_int(&slot.deferral, DEFERRAL_QUEUED)
    job_pool_add(&pool.jobs, &slot.deferred)
    job_pool_unlock(&pool.jobs)


# --- afterwards -----------------------------------------------------------------------------------------------

cdef void _take_back(GrammarPool *pool, Slot *slot) noexcept nogil:
    store_int(&slot.deferral, DEFERRAL_NONE)
    pool.n_out -= 1
    pool.deferred_us += now_us() - slot.t_deferred_us


cdef Slot *grammar_pool_next(GrammarPool *pool, Slots *slots) noexcept nogil:
    """Return a slot that has got its token and belongs to the engine again, or NULL."""
    cdef int32_t i
    if pool.n_out:
        for i in range(slots.n):
            if load_int(&slots.items[i].deferral) == DEFERRAL_DONE:
                _take_back(pool, &slots.items[i])
                return &slots.items[i]
    return NULL


cdef void grammar_pool_drop(GrammarPool *pool, Slot *slot) noexcept nogil:
    """Remove the slot from the queue, or cancel its sampling and wait, because its task ends."""
    if load_int(&slot.deferral) <= DEFERRAL_WANTED:  # it is not in the queue yet
        store_int(&slot.deferral, DEFERRAL_NONE)
        return
    job_pool_lock(&pool.jobs)
    if load_int(&slot.deferral) == DEFERRAL_QUEUED:
        job_pool_remove(&pool.jobs, &slot.deferred)
    elif load_int(&slot.deferral) == DEFERRAL_RUNNING:
        matcher_cancel(slot.matcher)
        while load_int(&slot.deferral) == DEFERRAL_RUNNING:
            job_pool_await(&pool.jobs)
    job_pool_unlock(&pool.jobs)
    _take_back(pool, slot)
