# A buffer for whole states, from which parts are cut, and in which they are joined.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from llamad.base.function_table cimport llamad_table
from llamad.engine.kv.slots cimport Slot
from llamad.protocol.adapter_span cimport AdapterSpan

ctypedef struct Staging:
    uint8_t *data            # NULL: no buffer
    size_t capacity
    void *fast               # what its device needs to free it; NULL: it has plain memory
    size_t n_state           # of the state that it has; 0: of none
    int32_t slot             # that state's slot,
    int32_t n_tokens         # its tokens, which lie behind the state,
    AdapterSpan adapters     # and the adapters that computed it
    int64_t t_used_us
    const llamad_table *table
    void *ctx
    int32_t has_device       # a device has the states
    size_t n_refused         # the device could not allocate so many bytes; 0: it never refused

cdef void staging_init(Staging *staging, const llamad_table *table, void *ctx, int has_device) noexcept nogil
cdef size_t staging_capacity(size_t n) noexcept nogil
cdef uint8_t *staging_take(Staging *staging, size_t n) noexcept nogil
cdef int staging_has(const Staging *staging, const Slot *slot) noexcept nogil
cdef size_t staging_bytes(size_t n_state, int32_t n_tokens) noexcept nogil
cdef int staging_read(Staging *staging, const Slot *slot, size_t n_state) noexcept nogil
cdef void staging_rest(Staging *staging) noexcept nogil
cdef void staging_free(Staging *staging) noexcept nogil
cdef int staging_expire(Staging *staging, int64_t now) noexcept nogil
cdef int staging_timeout_ms(const Staging *staging, int64_t now) noexcept nogil
