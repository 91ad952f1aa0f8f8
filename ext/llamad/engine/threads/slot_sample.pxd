# How one slot's next token comes about: sampler, grammar, probabilities.
from libc.stdint cimport int32_t

from llamad.engine.kv.slots cimport Slot

cdef enum Picked:
    PICKED_NOTHING = -1       # llama.cpp has no logits to pick from
    PICKED_END = -2000        # the grammar's text is complete and nothing that ends it may be picked: the task is done
    PICKED_STUCK = -2001      # no token of the vocabulary goes on as the grammar wants
    PICKED_TOO_MUCH = -2002   # the grammar needs more room or work than it is given

cdef void slot_pick(Slot *slot, int32_t n_vocab, void *scratch) noexcept nogil
cdef void slot_pick_rest(Slot *slot, void *scratch) noexcept nogil
