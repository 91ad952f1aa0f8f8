# Owns: the pick of one slot's token, on a sampler thread. Must not touch any other slot.
#
# As llama.cpp's programs do it, a grammar judges the picked token first; only when it refuses are all others that do
# not fit ruled out and the chain runs again, with its next random number.
from libc.stdint cimport int32_t

from llamad.engine.grammar cimport matcher_accept, matcher_allows, matcher_mask, matcher_may_end
from llamad.engine.probs cimport probs_after, probs_before
from llamad.engine.sampler cimport sampler_accept, sampler_pick
from llamad.engine.slots cimport Slot


cdef int32_t _pick_by_grammar(Slot *slot, int32_t token, void *scratch) noexcept nogil:
    """The token if it fits, else another that does; or one of the codes."""
    cdef int32_t code = matcher_allows(slot.matcher, token)
    if code == 0:
        code = matcher_mask(slot.matcher, slot.logits)
        if code > 0:
            token = sampler_pick(slot.sampler, slot.logits, scratch)
            # Biases may have ruled out all that the grammar leaves; then what was picked means nothing.
            code = matcher_allows(slot.matcher, token)
        if code == 0:
            return PICKED_END if matcher_may_end(slot.matcher) == 1 else PICKED_STUCK
    if code > 0:
        code = matcher_accept(slot.matcher, token)
    return token if code >= 0 else PICKED_TOO_MUCH


cdef void slot_pick(Slot *slot, int32_t n_vocab, void *scratch) noexcept nogil:
    """Fills slot.picked, negative for an error, and slot.probs. The row is not needed afterwards."""
    probs_before(&slot.probs, slot.logits, n_vocab, scratch)
    slot.picked = sampler_pick(slot.sampler, slot.logits, scratch)
    if slot.matcher != NULL and slot.picked >= 0:
        slot.picked = _pick_by_grammar(slot, slot.picked, scratch)
    if slot.picked >= 0:
        probs_after(&slot.probs, slot.sampler, slot.logits, slot.picked)
        sampler_accept(slot.sampler, slot.picked)
