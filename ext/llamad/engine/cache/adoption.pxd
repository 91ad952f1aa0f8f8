# Takes over the entries of an engine that has ended.
from libc.stdint cimport int32_t, uint8_t

from llamad.engine.cache.cache_types cimport Cache
from llamad.engine.kv.slots cimport Slots

cdef int32_t adoption_run(Cache *cache, const Slots *slots, const uint8_t *fingerprint) noexcept nogil
