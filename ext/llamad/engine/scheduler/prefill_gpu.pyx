# Owns: the room for prompts in a step on a GPU. Runs on the engine thread; changes only the plan.
#
# On a GPU a prefill step has a high fixed cost (graphs are built and launched piece by piece), and a token costs
# little. Beside decoding slots, the chunk is as large as possible while the gap between their tokens stays bounded.
# While many slots wait for their first token, or a few that can be served soon, decoding stalls for a while, because
# every decoding step delays them all.
from libc.stdint cimport int32_t, int64_t

from llamad.base.system cimport now_us
from llamad.engine.costs.scheduler cimport (
    GAP_FACTOR, GPU_CHUNK_TOKENS_MIN, GPU_GAP_US_MIN, LEAST_CHUNK_FACTOR, OUTLIER_FACTOR, PREFILL_WEIGHT,
    RARE_LEARN_RATE, SOON_STEPS, STALL_CREDIT_PART, STALL_CREDIT_US_MAX, UNTRIED_DECAY,
)
from llamad.engine.scheduler.plan cimport CHUNK_SIZES


cdef int32_t prefill_gpu_tokens(const Plan *plan, int32_t is_alone) noexcept nogil:
    """Return how many prompt tokens this step has time for."""
    if is_alone:
        return plan.batch_max
    if plan.n_decoding + plan.n_deferred == 0:
        return plan.ubatch  # one after the other, so that the first need not wait for the last
    return <int32_t>min(<double>plan.batch_max, plan.prefill_room
                        * max(1.0, PREFILL_WEIGHT * (plan.n_prefilling - 1) / (plan.n_decoding + 1.0)))


cdef int prefill_gpu_goes_first(Plan *plan) noexcept nogil:
    """Return whether decoding slots stall for slots that wait for their first token: these are many, or can be served
    soon, and there is credit left."""
    cdef int64_t now = now_us()
    plan.credit_us = min(<double>STALL_CREDIT_US_MAX,
                         plan.credit_us + <double>(now - plan.t_credit_us) / STALL_CREDIT_PART)
    plan.t_credit_us = now
    if plan.credit_us <= 0 or plan.n_prefilling < 2:
        return 0
    return (2 * plan.n_prefilling >= plan.n_decoding
            or plan.n_prompt_left * plan.prefill_token_us <= SOON_STEPS * plan.decode_step_us)


cdef int32_t _size(int32_t n_tokens) noexcept nogil:
    """Return the index of the nearest chunk size: 128 tokens, 256, 512, ..."""
    cdef int32_t k = 0
    while k + 1 < CHUNK_SIZES and GPU_CHUNK_TOKENS_MIN << (k + 1) <= n_tokens + n_tokens // 3:
        k += 1
    return k


cdef void prefill_gpu_learn(Plan *plan, int64_t decode_us) noexcept nogil:
    """Learn from the cost of the last step. The room becomes the largest size that keeps the gap, or that costs not
    much more than the smallest. An unknown size is tried, and the known cost of a larger size decays with every step,
    so that it is tried again now and then."""
    cdef double cost = max(1.0, <double>decode_us - plan.decode_step_us), limit
    cdef int32_t i, k
    if plan.n_stalled:
        plan.credit_us -= <double>decode_us
    if plan.n_decoding == 0 or plan.n_prefill_tokens == 0:
        return
    limit = max(max(GAP_FACTOR * plan.decode_step_us, <double>GPU_GAP_US_MIN) - plan.decode_step_us,
                LEAST_CHUNK_FACTOR * plan.chunk_us[0])
    cost = min(cost, OUTLIER_FACTOR * limit)
    k = _size(plan.n_prefill_tokens + plan.n_padding)
    if plan.n_prefill_tokens < plan.n_prompt_left and not plan.is_put_off:
        k = max(k, _size(plan.prefill_room))  # whole prompts do not always fill the room
    plan.chunk_us[k] += RARE_LEARN_RATE * (cost - plan.chunk_us[k]) if plan.chunk_us[k] > 0 else cost
    for i in range(k):
        plan.chunk_us[i] = min(plan.chunk_us[i], plan.chunk_us[k])  # a smaller chunk costs no more
    for i in range(k + 1, CHUNK_SIZES):
        plan.chunk_us[i] *= UNTRIED_DECAY
    k = 0
    while GPU_CHUNK_TOKENS_MIN << (k + 1) <= plan.ubatch and k + 1 < CHUNK_SIZES and plan.chunk_us[k + 1] <= limit:
        k += 1
        if plan.chunk_us[k] == 0:
            break
    plan.prefill_room = min(plan.ubatch, GPU_CHUNK_TOKENS_MIN << k)
