# The fake's sequences as bytes, for the function table.
from libc.stdint cimport int32_t, int64_t, uint8_t

from llamad.engine.testing.fake_model cimport FakeModel

cdef size_t fake_state_size(void *ctx, int32_t seq_id, int32_t flags) noexcept nogil
cdef size_t fake_state_get(void *ctx, int32_t seq_id, uint8_t *data, size_t n, int32_t flags) noexcept nogil
cdef size_t fake_state_set(void *ctx, int32_t seq_id, const uint8_t *data, size_t n, int32_t flags) noexcept nogil
cdef int64_t fake_device_free(void *ctx) noexcept nogil
cdef int64_t fake_copies_bytes(const FakeModel *model) noexcept nogil
cdef void fake_copies_clear(FakeModel *model) noexcept nogil
