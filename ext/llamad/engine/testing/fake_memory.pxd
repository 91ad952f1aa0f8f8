# The fake's KV memory, behind the table.
from libc.stdint cimport int32_t, uint8_t

from llamad.engine.testing.fake_model cimport FakeCell, FakeModel, FakeSeq

cdef int fake_ends_with_row(const FakeSeq *seq) noexcept nogil
cdef int32_t fake_next_pos(const FakeSeq *seq) noexcept nogil
cdef void fake_hold(FakeModel *model, FakeSeq *seq, FakeCell *cell) noexcept nogil
cdef FakeCell *fake_new_cell(int32_t pos, int32_t token, float adapters) noexcept nogil
cdef void fake_empty(FakeSeq *seq) noexcept nogil
cdef int32_t fake_seq_rm(void *ctx, int32_t seq_id, int32_t p0, int32_t p1) noexcept nogil
cdef int32_t fake_seq_add(void *ctx, int32_t seq_id, int32_t p0, int32_t p1, int32_t delta) noexcept nogil
cdef int32_t fake_seq_div(void *ctx, int32_t seq_id, int32_t p0, int32_t p1, int32_t divisor) noexcept nogil
cdef int32_t fake_seq_cp(void *ctx, int32_t src, int32_t dst) noexcept nogil
cdef int32_t fake_seq_pos_min(void *ctx, int32_t seq_id) noexcept nogil
cdef int32_t fake_can_shift(void *ctx) noexcept nogil
cdef size_t fake_state_size(void *ctx, int32_t seq_id, int32_t partial) noexcept nogil
cdef size_t fake_state_get(void *ctx, int32_t seq_id, uint8_t *data, size_t n, int32_t partial) noexcept nogil
cdef size_t fake_state_set(void *ctx, int32_t seq_id, const uint8_t *data, size_t n, int32_t partial) noexcept nogil
