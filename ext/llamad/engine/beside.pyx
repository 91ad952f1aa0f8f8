# Owns: the room for prompts where a device computes. Runs on the engine thread; decides, changes only the plan.
#
# A step that reads costs a device much whatever is read (graphs are built, and launched piece by piece) and little for a
# token. Beside writers so much is read that the gap between their tokens stays bounded. While many wait for their first
# token, writers sit out for a while: every step that they take part in delays all who wait.
from libc.stdint cimport int32_t, int64_t

from llamad.engine.system cimport now_us

cdef enum:
    GAP_US_MIN = 5000
    TOKENS_MIN = 128
    # The least difference in tokens that says something about their cost.
    SPREAD = 64
    # So many who write may wait longer for one more who waits for the first token.
    WAITING_WEIGHT = 4
    # Writers may sit out so long at a stretch, and a twentieth of the time: then one gap in a hundred is longer.
    CREDIT_US_MAX = 150000
    CREDIT_PART = 20

cdef double GAP_FACTOR = 2.5
cdef double DECAY = 0.9


cdef int32_t beside_tokens(const Plan *plan, int32_t is_alone) noexcept nogil:
    """Prompt tokens that this step has time for."""
    if is_alone:
        return plan.batch_max
    if plan.n_writing + plan.n_deferred == 0:
        return plan.ubatch  # one after the other: all at once would make the first wait for the last
    return <int32_t>min(<double>plan.batch_max,
                        plan.read_room * max(1.0, WAITING_WEIGHT * (plan.n_reading - 1) / (plan.n_writing + 1.0)))


cdef int beside_is_readers(Plan *plan) noexcept nogil:
    """Whether those who write wait for those who wait for their first token: these are many, and it was not so lately."""
    cdef int64_t now = now_us()
    plan.credit_us = min(<double>CREDIT_US_MAX, plan.credit_us + <double>(now - plan.t_made_us) / CREDIT_PART)
    plan.t_made_us = now
    if plan.credit_us <= 0 or plan.n_reading < 2:
        return 0
    return 2 * plan.n_reading >= plan.n_writing


cdef void beside_learn(Plan *plan, int64_t decode_us) noexcept nogil:
    """What the step just decoded cost. The fixed part and a token's are learned from the last steps that read beside
    writers by a line through them. The room is what keeps to the gap, but never so little that the fixed part is more than
    twice the rest: that would only make more such steps."""
    cdef double x = plan.n_reading_tokens, y = max(0.0, <double>decode_us - plan.write_us), det, slope, fixed
    cdef double allowed = max(GAP_FACTOR * plan.write_us, <double>GAP_US_MIN) - plan.write_us
    if plan.n_sitting:
        plan.credit_us -= <double>decode_us
    if plan.n_writing == 0 or plan.n_reading_tokens == 0:
        return
    plan.line[0] = DECAY * plan.line[0] + 1
    plan.line[1] = DECAY * plan.line[1] + x
    plan.line[2] = DECAY * plan.line[2] + y
    plan.line[3] = DECAY * plan.line[3] + x * x
    plan.line[4] = DECAY * plan.line[4] + x * y
    det = plan.line[0] * plan.line[3] - plan.line[1] * plan.line[1]
    slope = 0.5 * plan.line[2] / plan.line[1]  # until steps of different size were seen
    if det > plan.line[0] * plan.line[0] * SPREAD * SPREAD:
        slope = (plan.line[0] * plan.line[4] - plan.line[1] * plan.line[2]) / det
    slope = max(slope, 0.5)
    fixed = max(0.0, (plan.line[2] - slope * plan.line[1]) / plan.line[0])
    plan.read_room = max(allowed - fixed, 0.5 * fixed) / slope
    plan.read_room = min(<double>plan.batch_max, max(<double>TOKENS_MIN, plan.read_room))
