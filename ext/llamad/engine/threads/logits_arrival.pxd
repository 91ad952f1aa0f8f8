# Rows of logits that sampler threads read while the device is still sending them (logits_arrival.h says how).
from libc.stdint cimport int8_t, int32_t, int64_t

cdef extern from "llamad/engine/threads/logits_arrival.h" nogil:
    void landing_mark(float *row, int32_t n) noexcept
    int landing_await(const float *row, int32_t n, float *maxima, const int32_t *is_over,
                      int64_t patience_us) noexcept
    void landing_await_all(const int32_t *is_over, int64_t patience_us) noexcept

cdef enum:
    LANDING_SIZES = 16

ctypedef struct Landing:
    float *rows              # where llama.cpp has the device write; NULL: not known
    int8_t *is_marked        # one for each row
    int32_t n_rows           # that llama.cpp keeps room for from the beginning on; 0: this is not done at all
    int32_t n_vocab
    int32_t is_over          # the device has sent everything
    int64_t patience_us      # until when threads spin
    double read_us[LANDING_SIZES]  # what a step with prompts took: of 1 token, of 2, of up to 4, ...; 0: not known
    int8_t is_steady[LANDING_SIZES]  # and the last one took about as long as was expected

cdef int landing_init(Landing *landing, int32_t n_rows, int32_t n_vocab) noexcept nogil
cdef void landing_free(Landing *landing) noexcept nogil
cdef void landing_forget(Landing *landing) noexcept nogil
cdef int landing_can_begin(const Landing *landing, int32_t n_rows) noexcept nogil
cdef int64_t landing_begin(Landing *landing, int32_t n_rows, int64_t due_us) noexcept nogil
cdef int32_t landing_rows_in(const Landing *landing, int32_t us) noexcept nogil
cdef int landing_is_soon(const Landing *landing, int32_t n_tokens) noexcept nogil
cdef int64_t landing_read_from(const Landing *landing, int32_t n_tokens, int64_t t_decode) noexcept nogil
cdef int64_t landing_begin_read(Landing *landing, int32_t n_tokens, int64_t t_decode) noexcept nogil
cdef void landing_learn_read(Landing *landing, int32_t n_tokens, int64_t step_us) noexcept nogil
cdef void landing_overwritten(Landing *landing, int32_t n_rows) noexcept nogil
cdef void landing_end(Landing *landing, float *rows) noexcept nogil
cdef void landing_mark_row(Landing *landing, int32_t i_row) noexcept nogil
