# Owns: sampling one slot's token, on a sampler thread; a grammar thread (grammar_pool.pyx) finishes it if the grammar
# takes long. Must not touch any other slot.
#
# As in llama.cpp's programs, a grammar checks the sampled token first. Only if it refuses the token, all tokens that do
# not fit are masked, and the chain runs again, with its next random number.
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from llamad.base.system cimport store_int
from llamad.engine.kv.slots cimport DEFERRAL_WANTED, DRAFT_MAX, Slot
from llamad.engine.sampler.logprobs cimport probs_after, probs_before
from llamad.engine.sampler.sampler cimport sampler_accept, sampler_mark, sampler_sample
from llamad.grammar.grammar cimport (
    LLAMAD_GRAMMAR_E_LATER, matcher_accept, matcher_allows, matcher_forced, matcher_mask, matcher_may_end,
    matcher_set_allowance,
)
from llamad.protocol.messages cimport SAMPLED_END, SAMPLED_STUCK, SAMPLED_TOO_MUCH

# The next stage of sampling under a grammar. Each stage ends with one call that may have to be repeated later, and
# changes nothing before it.
cdef enum Stage:
    STAGE_JUDGE = 0           # check the first sample
    STAGE_MASK = 1            # it does not fit: mask all tokens that do not, and sample again
    STAGE_JUDGE_AGAIN = 2     # check again: biases may exclude all tokens that the grammar allows
    STAGE_NOTHING = 3         # no token fits: check whether the text is complete
    STAGE_ACCEPT = 4
    STAGE_DONE = 5


cdef void _sample(Slot *slot, void *scratch) noexcept nogil:
    """Sample a token. Its probabilities are copied at once, because they are in this thread's scratch memory."""
    slot.sampler.keeps_candidates = slot.probs.n_top and slot.probs.is_post
    slot.sampled = sampler_sample(slot.sampler, slot.logits, scratch)
    probs_after(&slot.probs, slot.sampler, slot.logits, slot.sampled)


cdef int32_t _take_stage(Slot *slot, void *scratch) noexcept nogil:
    """Run the current stage and set the next one. Return the grammar's code; on an error the stage stays."""
    cdef int32_t code
    if slot.sample_stage == STAGE_JUDGE or slot.sample_stage == STAGE_JUDGE_AGAIN:
        code = matcher_allows(slot.matcher, slot.sampled)
        if code > 0:
            slot.sample_stage = STAGE_ACCEPT
        elif code == 0:
            slot.sample_stage = STAGE_MASK if slot.sample_stage == STAGE_JUDGE else STAGE_NOTHING
    elif slot.sample_stage == STAGE_MASK:
        code = matcher_mask(slot.matcher, slot.logits)
        if code > 0:
            _sample(slot, scratch)
        if code >= 0:
            slot.sample_stage = STAGE_JUDGE_AGAIN if code > 0 else STAGE_NOTHING
    elif slot.sample_stage == STAGE_NOTHING:
        code = matcher_may_end(slot.matcher)
        if code >= 0:
            slot.sampled = SAMPLED_END if code == 1 else SAMPLED_STUCK
            slot.sample_stage = STAGE_DONE
    else:
        code = matcher_accept(slot.matcher, slot.sampled)
        if code >= 0:
            sampler_accept(slot.sampler, slot.sampled)
            slot.sample_stage = STAGE_DONE
    return code


cdef int32_t _take_stages(Slot *slot, void *scratch) noexcept nogil:
    """Run all stages. Return 0, or LLAMAD_GRAMMAR_E_LATER if the matcher's allowance was not enough."""
    cdef int32_t code
    while slot.sample_stage != STAGE_DONE:
        code = _take_stage(slot, scratch)
        if code == LLAMAD_GRAMMAR_E_LATER:
            return code
        if code < 0:
            slot.sampled = SAMPLED_TOO_MUCH
            return 0
    return 0


cdef void _find_forced(Slot *slot) noexcept nogil:
    """Find the text that must follow the last sampled token, for a draft."""
    slot.n_found = 0
    if slot.finds_forced and slot.matcher != NULL and slot.sampled >= 0:
        slot.n_found = matcher_forced(slot.matcher, slot.found, DRAFT_MAX)


cdef void slot_sample_rest(Slot *slot, void *scratch) noexcept nogil:
    """Continue where slot_sample() stopped, with all the work that the matcher has left."""
    matcher_set_allowance(slot.matcher, -1)
    _take_stages(slot, scratch)
    _find_forced(slot)


cdef int slot_take_row(Slot *slot, const float *row, int32_t n_vocab) noexcept nogil:
    """Give the slot its own copy of a row, because the next decode overwrites the context's. Return 0, or -1 if memory
    ran out."""
    cdef size_t n = <size_t>n_vocab * sizeof(float)
    if slot.row == NULL:
        slot.row = <float *>malloc(n)
    if slot.row == NULL:
        return -1
    if row != slot.row:
        memcpy(slot.row, row, n)
    slot.logits = slot.row
    return 0


cdef void slot_sample(Slot *slot, int32_t n_vocab, void *scratch) noexcept nogil:
    """Set slot.sampled, negative for an error, and slot.probs; or set slot.deferral to DEFERRAL_WANTED. The row is not
    needed afterwards."""
    probs_before(&slot.probs, slot.logits, n_vocab, scratch)
    _sample(slot, scratch)
    if slot.sampled < 0:
        return
    if slot.matcher == NULL:
        sampler_accept(slot.sampler, slot.sampled)
        return
    slot.sample_stage = STAGE_JUDGE
    if _take_stages(slot, scratch) == 0:
        return
    if slot_take_row(slot, slot.logits, n_vocab) == 0:
        store_int(&slot.deferral, DEFERRAL_WANTED)
    else:
        slot_sample_rest(slot, scratch)  # in the step, while the other slots wait


cdef void slot_sample_draft(Slot *slot, float *rows, int32_t n_vocab, const uint8_t *is_eog,
                            void *scratch) noexcept nogil:
    """Sample the slot's tokens of this step, the first from the first row. The next row counts only if the token is the
    one that was drafted: it is then exactly the row that another step would have given. If a token is deferred, it is
    the one after those in slot.samples."""
    cdef int32_t n = 0
    slot.n_samples = 0
    while True:
        slot.logits = rows + <size_t>n * <size_t>n_vocab
        slot.probs.n_ahead = n
        slot_sample(slot, n_vocab, scratch)
        if slot.deferral:
            return
        slot.samples[n] = slot.sampled
        sampler_mark(slot.sampler, &slot.marks[n])
        n += 1
        slot.n_samples = n
        if n > slot.n_draft or slot.sampled != slot.draft[n - 1] or is_eog[slot.sampled]:
            slot.probs.n_ahead = n
            _find_forced(slot)
            return
