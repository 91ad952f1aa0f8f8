# Owns: the pick of one slot's token, on a sampler thread, and its rest on a grammar thread (grammar_pool.pyx) where the
# grammar takes long. Must not touch any other slot.
#
# As llama.cpp's programs do it, a grammar judges the picked token first; only when it refuses are all others that do
# not fit ruled out and the chain runs again, with its next random number.
from libc.stdint cimport int32_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from llamad.engine.threads.grammar_pool cimport DEFERRAL_WANTED
from llamad.grammar.grammar cimport (
    LLAMAD_GRAMMAR_E_LATER, matcher_accept, matcher_allows, matcher_mask, matcher_may_end, matcher_set_allowance,
)
from llamad.engine.sampler.logprobs cimport probs_after, probs_before
from llamad.engine.sampler.sampler cimport sampler_accept, sampler_pick
from llamad.engine.kv.slots cimport Slot
from llamad.base.system cimport store_int

# What a pick under a grammar does next. Each stage ends with one call that may have to come later, and changes
# nothing before it.
cdef enum Stage:
    STAGE_JUDGE = 0           # the first pick
    STAGE_MASK = 1            # it does not fit: rule out all that does not, and pick again
    STAGE_JUDGE_AGAIN = 2     # biases may have ruled out all that the grammar leaves; then the second means nothing
    STAGE_NOTHING = 3         # nothing fits: is the text complete?
    STAGE_ACCEPT = 4
    STAGE_DONE = 5


cdef void _sample(Slot *slot, void *scratch) noexcept nogil:
    """The probabilities are told at once: what they are read from is the scratch of this thread."""
    slot.picked = sampler_pick(slot.sampler, slot.logits, scratch)
    probs_after(&slot.probs, slot.sampler, slot.logits, slot.picked)


cdef int32_t _take_stage(Slot *slot, void *scratch) noexcept nogil:
    """What the grammar answers, with the stage after this one set unless that is an error."""
    cdef int32_t code
    if slot.pick_stage == STAGE_JUDGE or slot.pick_stage == STAGE_JUDGE_AGAIN:
        code = matcher_allows(slot.matcher, slot.picked)
        if code > 0:
            slot.pick_stage = STAGE_ACCEPT
        elif code == 0:
            slot.pick_stage = STAGE_MASK if slot.pick_stage == STAGE_JUDGE else STAGE_NOTHING
    elif slot.pick_stage == STAGE_MASK:
        code = matcher_mask(slot.matcher, slot.logits)
        if code > 0:
            _sample(slot, scratch)
        if code >= 0:
            slot.pick_stage = STAGE_JUDGE_AGAIN if code > 0 else STAGE_NOTHING
    elif slot.pick_stage == STAGE_NOTHING:
        code = matcher_may_end(slot.matcher)
        if code >= 0:
            slot.picked = PICKED_END if code == 1 else PICKED_STUCK
            slot.pick_stage = STAGE_DONE
    else:
        code = matcher_accept(slot.matcher, slot.picked)
        if code >= 0:
            sampler_accept(slot.sampler, slot.picked)
            slot.pick_stage = STAGE_DONE
    return code


cdef int32_t _take_stages(Slot *slot, void *scratch) noexcept nogil:
    """0: picked. LLAMAD_GRAMMAR_E_LATER: not within the matcher's allowance."""
    cdef int32_t code
    while slot.pick_stage != STAGE_DONE:
        code = _take_stage(slot, scratch)
        if code == LLAMAD_GRAMMAR_E_LATER:
            return code
        if code < 0:
            slot.picked = PICKED_TOO_MUCH
            return 0
    return 0


cdef void slot_pick_rest(Slot *slot, void *scratch) noexcept nogil:
    """Goes on where slot_pick stopped, with all the work that the matcher has."""
    matcher_set_allowance(slot.matcher, -1)
    _take_stages(slot, scratch)


cdef int _keep_row(Slot *slot, int32_t n_vocab) noexcept nogil:
    """The context's row is gone with the next decode; 0, or -1 without memory."""
    cdef size_t n = <size_t>n_vocab * sizeof(float)
    if slot.row == NULL:
        slot.row = <float *>malloc(n)
    if slot.row == NULL:
        return -1
    memcpy(slot.row, slot.logits, n)
    slot.logits = slot.row
    return 0


cdef void slot_pick(Slot *slot, int32_t n_vocab, void *scratch) noexcept nogil:
    """Fills slot.picked, negative for an error, and slot.probs; or leaves slot.deferral wanted. The row is not needed
    afterwards."""
    probs_before(&slot.probs, slot.logits, n_vocab, scratch)
    _sample(slot, scratch)
    if slot.picked < 0:
        return
    if slot.matcher == NULL:
        sampler_accept(slot.sampler, slot.picked)
        return
    slot.pick_stage = STAGE_JUDGE
    if _take_stages(slot, scratch) == 0:
        return
    if _keep_row(slot, n_vocab) == 0:
        store_int(&slot.deferral, DEFERRAL_WANTED)
    else:
        slot_pick_rest(slot, scratch)  # others wait, but it comes out right
