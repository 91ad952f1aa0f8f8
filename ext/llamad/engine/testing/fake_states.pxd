# The fake's sequences as bytes, for the function table.
from libc.stdint cimport int32_t, uint8_t

cdef size_t fake_state_size(void *ctx, int32_t seq_id, int32_t partial) noexcept nogil
cdef size_t fake_state_get(void *ctx, int32_t seq_id, uint8_t *data, size_t n, int32_t partial) noexcept nogil
cdef size_t fake_state_set(void *ctx, int32_t seq_id, const uint8_t *data, size_t n, int32_t partial) noexcept nogil
