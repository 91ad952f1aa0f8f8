# Owns: which rows of llama.cpp's output buffer hold sentinels, so that their arrival can be noticed. Used by the engine
# thread, except a row's flag, which is set by the sampler thread that has read the row.
#
# llama.cpp has the rows of a step sent into one buffer, in the order of the batch's outputs, and returns the buffer
# only when all have arrived. With a large vocabulary that takes as long as sampling. So sampling begins earlier: the
# buffer of the last step is known, and stays in place as long as no batch has more outputs than there are slots.
#
# Filling a row with sentinels takes as long as sampling it. Nobody awaits a single row, so it gets its sentinels only
# before a step with more rows.
#
# If a step with prompts consists of several graphs, its rows may come in another order. Then nothing is sampled before
# all have arrived, but the threads are awake by then.
from libc.stdint cimport int8_t, int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from llamad.engine.costs.sampler cimport (
    ALERT_STEP_US_MAX, ARRIVAL_LEAD_US, ARRIVAL_SPIN_US, BUS_BYTES_PER_US, PREFILL_LEAD_PART, PREFILL_LEAD_US_MAX,
    STEADY_US,
)


cdef int arrival_init(LogitsArrival *arrival, int32_t n_rows, int32_t n_vocab) noexcept nogil:
    """Return 0, or -1 if memory ran out."""
    memset(arrival, 0, sizeof(LogitsArrival))
    arrival.n_rows = n_rows
    arrival.n_vocab = n_vocab
    arrival.has_sentinels = <int8_t *>calloc(<size_t>n_rows + 1, 1)
    return 0 if arrival.has_sentinels != NULL else -1


cdef void arrival_free(LogitsArrival *arrival) noexcept nogil:
    free(arrival.has_sentinels)
    arrival.has_sentinels = NULL


cdef void arrival_forget(LogitsArrival *arrival) noexcept nogil:
    """Forget the buffer, because there may be another one from now on."""
    arrival.rows = NULL
    memset(arrival.has_sentinels, 0, <size_t>arrival.n_rows)


cdef int arrival_can_begin(const LogitsArrival *arrival, int32_t n_rows) noexcept nogil:
    cdef int32_t i
    if arrival.rows == NULL or not 1 < n_rows <= arrival.n_rows:
        return 0
    for i in range(n_rows):
        if not arrival.has_sentinels[i]:
            return 0
    return 1


cdef void arrival_expect(LogitsArrival *arrival, int32_t n_rows) noexcept nogil:
    """Prepare for a decode with this many rows: fill the first one if only that has no sentinels, because there was a
    step of one row before. Several take too long."""
    cdef int32_t i
    if arrival.rows == NULL or not 1 < n_rows <= arrival.n_rows or arrival.has_sentinels[0]:
        return
    for i in range(1, n_rows):
        if not arrival.has_sentinels[i]:
            return
    arrival_reset_row(arrival, 0)


cdef int64_t arrival_begin(LogitsArrival *arrival, int32_t n_rows, int64_t due_us) noexcept nogil:
    """Prepare for rows, the last due at about due_us. Return the time from which threads should watch for them."""
    arrival.is_over = 0
    arrival.patience_us = due_us + ARRIVAL_SPIN_US
    return due_us - <int64_t>n_rows * arrival.n_vocab * 4 // BUS_BYTES_PER_US - ARRIVAL_LEAD_US


cdef int32_t _size(int32_t n_tokens) noexcept nogil:
    cdef int32_t k = 0
    while k + 1 < ARRIVAL_SIZES and 1 << k < n_tokens:
        k += 1
    return k


cdef int32_t arrival_rows_in(const LogitsArrival *arrival, int32_t us) noexcept nogil:
    """Return how many rows arrive in this time."""
    return <int32_t>(<int64_t>us * BUS_BYTES_PER_US // (<int64_t>arrival.n_vocab * 4))


cdef int arrival_is_soon(const LogitsArrival *arrival, int32_t n_tokens) noexcept nogil:
    """Return whether the rows of a step with this many tokens come soon, at a predictable time."""
    cdef int32_t size = _size(n_tokens)
    return arrival.is_steady[size] and arrival.prefill_us[size] < ALERT_STEP_US_MAX


cdef int64_t arrival_prefill_from(const LogitsArrival *arrival, int32_t n_tokens, int64_t t_decode) noexcept nogil:
    """Return the time from which threads should wait for the rows of a step with prompts begun at t_decode."""
    cdef int64_t step_us = <int64_t>arrival.prefill_us[_size(n_tokens)]
    return t_decode + step_us - min(step_us // PREFILL_LEAD_PART, <int64_t>PREFILL_LEAD_US_MAX) - ARRIVAL_LEAD_US


cdef int64_t arrival_begin_prefill(LogitsArrival *arrival, int32_t n_tokens, int64_t t_decode) noexcept nogil:
    """Prepare for the rows of a step with prompts. Return the time from which threads should wait for them."""
    arrival.is_over = 0
    arrival.patience_us = t_decode + <int64_t>arrival.prefill_us[_size(n_tokens)] + ARRIVAL_SPIN_US
    return arrival_prefill_from(arrival, n_tokens, t_decode)


cdef void arrival_learn_prefill(LogitsArrival *arrival, int32_t n_tokens, int64_t step_us) noexcept nogil:
    """Learn the time of a step with prompts: half of it at once, because the first steps load code."""
    cdef int32_t size = _size(n_tokens)
    cdef double *known = &arrival.prefill_us[size]
    arrival.is_steady[size] = -STEADY_US < <double>step_us - known[0] < STEADY_US
    known[0] = (known[0] + <double>step_us) / 2 if known[0] > 0 else <double>step_us


cdef void arrival_overwritten(LogitsArrival *arrival, int32_t n_rows) noexcept nogil:
    """Note that a decode with this many outputs has overwritten rows."""
    if n_rows > arrival.n_rows:
        arrival_forget(arrival)
    else:
        memset(arrival.has_sentinels, 0, <size_t>n_rows)


cdef void arrival_end(LogitsArrival *arrival, float *rows) noexcept nogil:
    """Note that all rows have arrived, and where they are."""
    if rows != arrival.rows:
        arrival_forget(arrival)
    arrival.rows = rows


cdef void arrival_reset_row(LogitsArrival *arrival, int32_t i_row) noexcept nogil:
    """Fill a row that has been read with sentinels."""
    if arrival.rows != NULL and i_row < arrival.n_rows:
        arrival_fill_sentinels(arrival.rows + <size_t>i_row * <size_t>arrival.n_vocab, arrival.n_vocab)
        arrival.has_sentinels[i_row] = 1
