# Rows of logits that sampler threads read while a GPU is still sending them (see logits_arrival.h).
from libc.stdint cimport int8_t, int32_t, int64_t

cdef extern from "llamad/engine/threads/logits_arrival.h" nogil:
    void arrival_fill_sentinels(float *row, int32_t n) noexcept
    int arrival_await(const float *row, int32_t n, float *maxima, const int32_t *is_over,
                      int64_t patience_us) noexcept
    void arrival_await_all(const int32_t *is_over, int64_t patience_us) noexcept

cdef enum:
    ARRIVAL_SIZES = 16

ctypedef struct LogitsArrival:
    float *rows              # the buffer to which the GPU writes; NULL: unknown
    int8_t *has_sentinels    # one for each row
    int32_t n_rows           # rows for which llama.cpp always keeps room; 0: off
    int32_t n_vocab
    int32_t is_over          # the GPU has sent everything
    int64_t patience_us      # the time until which threads spin
    double prefill_us[ARRIVAL_SIZES]  # time of a step with prompts: of 1 token, 2, up to 4, ...; 0: unknown
    int8_t is_steady[ARRIVAL_SIZES]   # the last such step took about as long as expected

cdef int arrival_init(LogitsArrival *arrival, int32_t n_rows, int32_t n_vocab) noexcept nogil
cdef void arrival_free(LogitsArrival *arrival) noexcept nogil
cdef void arrival_forget(LogitsArrival *arrival) noexcept nogil
cdef int arrival_can_begin(const LogitsArrival *arrival, int32_t n_rows) noexcept nogil
cdef void arrival_expect(LogitsArrival *arrival, int32_t n_rows) noexcept nogil
cdef int64_t arrival_begin(LogitsArrival *arrival, int32_t n_rows, int64_t due_us) noexcept nogil
cdef int32_t arrival_rows_in(const LogitsArrival *arrival, int32_t us) noexcept nogil
cdef int arrival_is_soon(const LogitsArrival *arrival, int32_t n_tokens) noexcept nogil
cdef int64_t arrival_prefill_from(const LogitsArrival *arrival, int32_t n_tokens, int64_t t_decode) noexcept nogil
cdef int64_t arrival_begin_prefill(LogitsArrival *arrival, int32_t n_tokens, int64_t t_decode) noexcept nogil
cdef void arrival_learn_prefill(LogitsArrival *arrival, int32_t n_tokens, int64_t step_us) noexcept nogil
cdef void arrival_overwritten(LogitsArrival *arrival, int32_t n_rows) noexcept nogil
cdef void arrival_end(LogitsArrival *arrival, float *rows) noexcept nogil
cdef void arrival_reset_row(LogitsArrival *arrival, int32_t i_row) noexcept nogil
