# Owns: the room for prompts where a device computes. Runs on the engine thread; decides, changes only the plan.
#
# A step that reads costs a device much whatever is read (graphs are built, and launched piece by piece) and little for a
# token. Beside writers so much is read that the gap between their tokens stays bounded. While many wait for their first
# token, or some who are soon served, writers sit out for a while: every step that they take part in delays all who wait.
from libc.stdint cimport int32_t, int64_t

from llamad.engine.scheduler.plan cimport BESIDE_SIZES
from llamad.base.system cimport now_us

cdef enum:
    GAP_US_MIN = 5000
    # So many who write may wait longer for one more who waits for the first token.
    WAITING_WEIGHT = 4
    # Whoever reads is soon served within so many steps of writing.
    SOON_STEPS = 6
    # Writers may sit out so long at a stretch, and a tenth of the time: such a gap is as long as many, so there are few.
    CREDIT_US_MAX = 150000
    CREDIT_PART = 10

cdef double GAP_FACTOR = 2.5
cdef double LEAST_FACTOR = 1.5
cdef double DEAR_FACTOR = 3
cdef double LEARN_RATE = 0.3
cdef double BELIEF = 0.995


cdef int32_t beside_tokens(const Plan *plan, int32_t is_alone) noexcept nogil:
    """Prompt tokens that this step has time for."""
    if is_alone:
        return plan.batch_max
    if plan.n_writing + plan.n_deferred == 0:
        return plan.ubatch  # one after the other: all at once would make the first wait for the last
    return <int32_t>min(<double>plan.batch_max,
                        plan.read_room * max(1.0, WAITING_WEIGHT * (plan.n_reading - 1) / (plan.n_writing + 1.0)))


cdef int beside_is_readers(Plan *plan) noexcept nogil:
    """Whether those who write wait for those who wait for their first token: these are many, or soon served, and it was
    not so lately."""
    cdef int64_t now = now_us()
    plan.credit_us = min(<double>CREDIT_US_MAX, plan.credit_us + <double>(now - plan.t_made_us) / CREDIT_PART)
    plan.t_made_us = now
    if plan.credit_us <= 0 or plan.n_reading < 2:
        return 0
    return 2 * plan.n_reading >= plan.n_writing or plan.n_unread * plan.read_token_us <= SOON_STEPS * plan.write_us


cdef int32_t _size(int32_t n_tokens) noexcept nogil:
    """Which of the sizes a chunk counts as: 128 tokens, 256, 512, ..., the nearest."""
    cdef int32_t k = 0
    while k + 1 < BESIDE_SIZES and TOKENS_MIN << (k + 1) <= n_tokens + n_tokens // 3:
        k += 1
    return k


cdef void beside_learn(Plan *plan, int64_t decode_us) noexcept nogil:
    """What the step just decoded cost. The room is the largest size that keeps to the gap, or that costs not much more
    than the least: to read less would only make more such steps. A size that is not known yet is tried, and one that was
    too dear is believed a little less with every step, so that it is tried again now and then."""
    cdef double cost = max(1.0, <double>decode_us - plan.write_us), limit
    cdef int32_t i, k
    if plan.n_sitting:
        plan.credit_us -= <double>decode_us
    if plan.n_writing == 0 or plan.n_reading_tokens == 0:
        return
    limit = max(max(GAP_FACTOR * plan.write_us, <double>GAP_US_MIN) - plan.write_us, LEAST_FACTOR * plan.size_us[0])
    cost = min(cost, DEAR_FACTOR * limit)  # the first of its kind loads code, which says nothing of the next
    k = _size(plan.n_reading_tokens + plan.n_pads)
    if plan.n_reading_tokens < plan.n_unread and not plan.is_refused:
        k = max(k, _size(plan.read_room))  # whole prompts do not always fill the room
    plan.size_us[k] += LEARN_RATE * (cost - plan.size_us[k]) if plan.size_us[k] > 0 else cost
    for i in range(k):
        plan.size_us[i] = min(plan.size_us[i], plan.size_us[k])  # less costs no more
    for i in range(k + 1, BESIDE_SIZES):
        plan.size_us[i] *= BELIEF
    k = 0
    while TOKENS_MIN << (k + 1) <= plan.ubatch and k + 1 < BESIDE_SIZES and plan.size_us[k + 1] <= limit:
        k += 1
        if plan.size_us[k] == 0:
            break
    plan.read_room = min(plan.ubatch, TOKENS_MIN << k)
