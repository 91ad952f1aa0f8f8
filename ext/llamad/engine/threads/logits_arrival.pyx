# Owns: which rows of llama.cpp's output buffer carry the mark, so that their arrival can be seen. The engine thread's,
# but for a row's own flag, which is the sampler thread's that has read it.
#
# llama.cpp has the rows of a step sent into one buffer, in the order of the batch's outputs, and hands the buffer out
# only when all have arrived. With a big vocabulary that takes as long as sampling does, so sampling begins before: the
# buffer of the last step is known. It stays where it is as long as no batch has more outputs than there are slots.
#
# A step that reads prompts may give its rows in another order, if they are several graphs: nothing is picked then before
# all are there. But who will pick is awake by then.
from libc.stdint cimport int8_t, int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

cdef enum:
    LEAD_US = 120            # threads are awake so long before the first row is expected
    PATIENCE_US = 1000       # and spin so long after the last
    READ_LEAD_PART = 16      # of what a step with prompts takes: it varies more,
    READ_LEAD_US_MAX = 500   # but who waits keeps a core
    BYTES_A_US = 40000       # of a fast bus
    STEADY_US = 500          # steps with prompts that are off by less can be foreseen
    SOON_US = 20000          # only in short ones a moment counts


cdef int landing_init(Landing *landing, int32_t n_rows, int32_t n_vocab) noexcept nogil:
    """0, or -1 without memory."""
    memset(landing, 0, sizeof(Landing))
    landing.n_rows = n_rows
    landing.n_vocab = n_vocab
    landing.is_marked = <int8_t *>calloc(<size_t>n_rows + 1, 1)
    return 0 if landing.is_marked != NULL else -1


cdef void landing_free(Landing *landing) noexcept nogil:
    free(landing.is_marked)
    landing.is_marked = NULL


cdef void landing_forget(Landing *landing) noexcept nogil:
    """The buffer may be another one from now on."""
    landing.rows = NULL
    memset(landing.is_marked, 0, <size_t>landing.n_rows)


cdef int landing_can_begin(const Landing *landing, int32_t n_rows) noexcept nogil:
    cdef int32_t i
    if landing.rows == NULL or not 1 < n_rows <= landing.n_rows:
        return 0
    for i in range(n_rows):
        if not landing.is_marked[i]:
            return 0
    return 1


cdef int64_t landing_begin(Landing *landing, int32_t n_rows, int64_t due_us) noexcept nogil:
    """Rows are on their way, and the last is expected at about due_us: from when on threads should watch for them."""
    landing.is_over = 0
    landing.patience_us = due_us + PATIENCE_US
    return due_us - <int64_t>n_rows * landing.n_vocab * 4 // BYTES_A_US - LEAD_US


cdef int32_t _size(int32_t n_tokens) noexcept nogil:
    cdef int32_t k = 0
    while k + 1 < LANDING_SIZES and 1 << k < n_tokens:
        k += 1
    return k


cdef int32_t landing_rows_in(const Landing *landing, int32_t us) noexcept nogil:
    """How many rows come in such a time."""
    return <int32_t>(<int64_t>us * BYTES_A_US // (<int64_t>landing.n_vocab * 4))


cdef int landing_is_soon(const Landing *landing, int32_t n_tokens) noexcept nogil:
    """Whether the rows of so many tokens come soon, and when is known."""
    cdef int32_t size = _size(n_tokens)
    return landing.is_steady[size] and landing.read_us[size] < SOON_US


cdef int64_t landing_read_from(const Landing *landing, int32_t n_tokens, int64_t t_decode) noexcept nogil:
    """So many tokens are decoded since t_decode: from when on threads should wait for the rows."""
    cdef int64_t step_us = <int64_t>landing.read_us[_size(n_tokens)]
    return t_decode + step_us - min(step_us // READ_LEAD_PART, <int64_t>READ_LEAD_US_MAX) - LEAD_US


cdef int64_t landing_begin_read(Landing *landing, int32_t n_tokens, int64_t t_decode) noexcept nogil:
    """The same, and the rows are on their way."""
    landing.is_over = 0
    landing.patience_us = t_decode + <int64_t>landing.read_us[_size(n_tokens)] + PATIENCE_US
    return landing_read_from(landing, n_tokens, t_decode)


cdef void landing_learn_read(Landing *landing, int32_t n_tokens, int64_t step_us) noexcept nogil:
    """Half of it is believed at once: the first steps of a process load code."""
    cdef int32_t size = _size(n_tokens)
    cdef double *known = &landing.read_us[size]
    landing.is_steady[size] = -STEADY_US < <double>step_us - known[0] < STEADY_US
    known[0] = (known[0] + <double>step_us) / 2 if known[0] > 0 else <double>step_us


cdef void landing_overwritten(Landing *landing, int32_t n_rows) noexcept nogil:
    """A batch with so many outputs was decoded."""
    if n_rows > landing.n_rows:
        landing_forget(landing)
    else:
        memset(landing.is_marked, 0, <size_t>n_rows)


cdef void landing_end(Landing *landing, float *rows) noexcept nogil:
    """All rows are there, and where they are."""
    if rows != landing.rows:
        landing_forget(landing)
    landing.rows = rows


cdef void landing_mark_row(Landing *landing, int32_t i_row) noexcept nogil:
    """The row was read and is free to be written to."""
    if landing.rows != NULL and i_row < landing.n_rows:
        landing_mark(landing.rows + <size_t>i_row * <size_t>landing.n_vocab, landing.n_vocab)
        landing.is_marked[i_row] = 1
