# Samples the next token of one slot: sampler, grammar, probabilities.
from libc.stdint cimport int32_t, uint8_t

from llamad.engine.kv.slots cimport Slot

cdef void slot_sample_draft(Slot *slot, float *rows, int32_t n_vocab, const uint8_t *is_eog,
                            void *scratch) noexcept nogil
cdef void slot_sample(Slot *slot, int32_t n_vocab, void *scratch) noexcept nogil
cdef void slot_sample_rest(Slot *slot, void *scratch) noexcept nogil
cdef int slot_take_row(Slot *slot, const float *row, int32_t n_vocab) noexcept nogil
