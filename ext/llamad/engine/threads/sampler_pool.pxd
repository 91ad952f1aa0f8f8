# The sampler threads: a pool that runs one function over the indices of a step.
from libc.stdint cimport int32_t, int64_t

from llamad.base.thread_pool cimport Threads

ctypedef void (*WorkFn)(void *arg, int32_t index, int32_t worker) noexcept nogil
ctypedef void (*AfterFn)(void *arg, int32_t worker) noexcept nogil

cdef enum:
    AWAITED_MAX = 512        # indices that can be awaited one by one

ctypedef struct SamplerPool:
    Threads threads          # without the caller
    int32_t stopping
    int64_t from_us          # the time from which this round has work; 0: now
    int64_t alert_us         # a little before the next round is likely to begin; 0: unknown
    WorkFn fn
    AfterFn after            # called by the same thread after an index is done; NULL: nothing
    void *arg
    int32_t n
    int32_t round
    int32_t next             # the next index to take, minus n
    int32_t n_done
    int32_t n_after          # indices whose `after` is done too
    int32_t stamp            # number of this round; set before an index can be taken, while `round` wakes threads
    int32_t done[AWAITED_MAX]  # the stamp of the round in which an index was last done
    int32_t bell             # changes whenever sleeping threads should check again
    int32_t n_sleeping
    int32_t n_seats          # threads that take part in this round or the alerted one, with the caller

cdef SamplerPool *sampler_pool_start(int32_t n_threads) noexcept nogil
cdef void sampler_pool_stop(SamplerPool *pool) noexcept nogil
cdef int32_t sampler_pool_count(const SamplerPool *pool) noexcept nogil
cdef void sampler_pool_alert(SamplerPool *pool, int32_t n, int64_t from_us) noexcept nogil
cdef void sampler_pool_begin(SamplerPool *pool, WorkFn fn, AfterFn after, void *arg, int32_t n,
                             int64_t from_us) noexcept nogil
cdef void sampler_pool_hurry(SamplerPool *pool) noexcept nogil
cdef int sampler_pool_is_done(const SamplerPool *pool, int32_t index) noexcept nogil
cdef void sampler_pool_await(SamplerPool *pool, int32_t index) noexcept nogil
cdef void sampler_pool_end(SamplerPool *pool) noexcept nogil
cdef void sampler_pool_drain(SamplerPool *pool) noexcept nogil
cdef void sampler_pool_run(SamplerPool *pool, WorkFn fn, void *arg, int32_t n) noexcept nogil
