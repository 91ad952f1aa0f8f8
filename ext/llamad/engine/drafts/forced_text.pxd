# Drafts of text that a grammar forces.
from libc.stdint cimport int32_t

from llamad.engine.kv.slots cimport Slot
from llamad.tokenizer.vocab cimport Pieces

cdef void forced_follow(Slot *slot, int32_t token, int32_t is_last) noexcept nogil
cdef void forced_draft(Slot *slot, const Pieces *pieces, int32_t n_max) noexcept nogil
