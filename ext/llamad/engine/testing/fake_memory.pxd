# The fake's memory for the function table: one cache, or several together.
from libc.stdint cimport int32_t

from llamad.engine.testing.fake_cells cimport FakeCell
from llamad.engine.testing.fake_model cimport FakeModel

cdef int32_t memory_held(FakeModel *model, int32_t seq) noexcept nogil
cdef int32_t memory_pos_max(FakeModel *model, int32_t seq) noexcept nogil
cdef int memory_ends_with_row(FakeModel *model, int32_t seq) noexcept nogil
cdef FakeCell **memory_order(FakeModel *model, int32_t seq) noexcept nogil
cdef void memory_clear(FakeModel *model) noexcept nogil
cdef int memory_is_bad(FakeModel *model, int32_t seq) noexcept nogil
cdef int memory_decode(FakeModel *model) noexcept nogil
cdef void memory_wait(FakeModel *model, const int32_t *is_blocked) noexcept nogil
cdef int32_t fake_seq_rm(void *ctx, int32_t seq_id, int32_t p0, int32_t p1) noexcept nogil
cdef int32_t fake_seq_add(void *ctx, int32_t seq_id, int32_t p0, int32_t p1, int32_t delta) noexcept nogil
cdef int32_t fake_seq_div(void *ctx, int32_t seq_id, int32_t p0, int32_t p1, int32_t divisor) noexcept nogil
cdef int32_t fake_seq_cp(void *ctx, int32_t src, int32_t dst, int32_t p0, int32_t p1) noexcept nogil
cdef int32_t fake_seq_pos_min(void *ctx, int32_t seq_id) noexcept nogil
cdef int32_t fake_can_shift(void *ctx) noexcept nogil
