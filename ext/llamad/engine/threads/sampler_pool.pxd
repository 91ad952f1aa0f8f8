# The sampler threads: a pool that runs one function over the indices of a step.
from libc.stdint cimport int32_t, int64_t

from llamad.base.thread_pool cimport Threads

ctypedef void (*WorkFn)(void *arg, int32_t index, int32_t worker) noexcept nogil
ctypedef void (*AfterFn)(void *arg, int32_t index, int32_t part) noexcept nogil

cdef enum:
    AWAITED_MAX = 512        # indices that can be awaited one by one
    AFTER_PARTS = 8          # parts of what is left to do for an index, so that threads can share it
    NEAR_SEATS = 6           # threads, with the caller, that are enough for a small round

ctypedef struct SamplerPool:
    Threads threads          # without the caller
    int32_t stopping
    int64_t from_us          # the time from which this round has work; 0: now
    int64_t alert_us         # a little before the next round is likely to begin; 0: unknown
    WorkFn fn
    AfterFn after            # called for each part of an index after it is done, in any order; NULL: nothing
    void *arg
    int32_t n
    int32_t round
    int32_t next             # the next index to take, minus n
    int32_t n_done
    int32_t n_after          # parts of indices whose `after` is done too
    int32_t next_part[AWAITED_MAX]  # the next part of an index to take; AFTER_PARTS or more: there is none
    int32_t stamp            # number of this round; set before an index can be taken, while `round` wakes threads
    int32_t done[AWAITED_MAX]  # the stamp of the round in which an index was last done
    int32_t bells[2]         # of near seats and of all others; changes whenever sleeping threads should check again
    int32_t n_sleeping[2]
    int32_t n_seats          # threads that take part in this round or the alerted one, with the caller
    const int32_t *gate      # threads take no index before this is set. Always the same address
    int32_t is_gated         # this round has a gate
    int64_t gate_spin_us     # the time until which threads spin at the gate

cdef SamplerPool *sampler_pool_start(int32_t n_threads) noexcept nogil
cdef void sampler_pool_stop(SamplerPool *pool) noexcept nogil
cdef int32_t sampler_pool_count(const SamplerPool *pool) noexcept nogil
cdef void sampler_pool_alert(SamplerPool *pool, int32_t n, int64_t from_us) noexcept nogil
cdef void sampler_pool_begin(SamplerPool *pool, WorkFn fn, AfterFn after, void *arg, int32_t n,
                             int64_t from_us) noexcept nogil
cdef void sampler_pool_begin_gated(SamplerPool *pool, WorkFn fn, void *arg, int32_t n, const int32_t *gate,
                                   int64_t from_us, int64_t spin_us) noexcept nogil
cdef void sampler_pool_hurry(SamplerPool *pool) noexcept nogil
cdef int sampler_pool_is_done(const SamplerPool *pool, int32_t index) noexcept nogil
cdef void sampler_pool_await(SamplerPool *pool, int32_t index) noexcept nogil
cdef void sampler_pool_end(SamplerPool *pool) noexcept nogil
cdef void sampler_pool_drain(SamplerPool *pool) noexcept nogil
cdef void sampler_pool_run(SamplerPool *pool, WorkFn fn, void *arg, int32_t n) noexcept nogil
