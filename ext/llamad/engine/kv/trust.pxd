# Whether the bytes of an entry can be given to llama.cpp.
from libc.stdint cimport int32_t, uint32_t

from llamad.protocol.cache_memory cimport llamad_cache
from llamad.ses1.ses1 cimport llamad_layout

ctypedef struct Trust:
    llamad_cache *memory
    const llamad_layout *layout  # of this engine's states; NULL: nothing from another engine is used
    uint32_t n_vocab
    uint32_t n_ctx               # of one slot

cdef int trust_row(const Trust *trust, int32_t row) noexcept nogil
cdef int trust_next(const Trust *trust) noexcept nogil
