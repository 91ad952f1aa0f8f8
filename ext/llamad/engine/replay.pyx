# Owns: how a task goes on that an earlier engine began and that was running when it ended, or whose sequence was computed
# again (suspension.pyx). Runs on the engine thread, after a decode. Must not sample anything.
#
# The front has the tokens that were drawn, the text that was sent, and a mark of the sampler. The slot prefills the prompt
# and all drawn tokens but the last, which is its next token. Its sampler, grammar and text get their state by taking the
# drawn tokens once more; what they would send again is dropped. So for the same logits the text is the one that the
# earlier engine would have written.
from libc.stdint cimport int32_t, uint64_t
from libc.string cimport memchr, memcpy

from llamad.base.system cimport now_us
from llamad.engine.events cimport finish_failed
from llamad.engine.kv.slots cimport SLOT_DECODING, Slot, slot_is_recomputing, slot_is_replayed
from llamad.engine.sample_step cimport sample_step_open
from llamad.engine.sampler.logprobs cimport probs_reserve_for
from llamad.engine.sampler.sampler cimport sampler_accept, sampler_return_to
from llamad.engine.state.engine_state cimport State
from llamad.grammar.grammar cimport matcher_accept, matcher_set_allowance
from llamad.protocol.messages cimport (
    FAILURE_GRAMMAR, FAILURE_LOST, FAILURE_MEMORY, FAILURE_SAMPLER, PROB_JSON_BYTES, SAMPLED_TOO_MUCH, TASK_MARKERS,
    TOKEN_JSON_BYTES, ResumePoint, TokenProb,
)
from llamad.tokenizer.detokenizer cimport Text, text_add, text_cut_line, text_sent
from llamad.tokenizer.loop_guard cimport loop_guard_add
from llamad.tokenizer.stop_strings cimport stops_scan
from llamad.tokenizer.vocab cimport Pieces

cdef enum:
    NEW_LINE = 10


cdef void _restore_counts(State *state, Slot *slot, const ResumePoint *resume) noexcept nogil:
    """Continue the counts and times of the task; the time without an engine is not counted."""
    state.stats.n_recomputed += <uint64_t>(slot.n_prefill - slot.n_cached)
    slot.n_cached = resume.n_cached
    slot.n_processed = slot.task.command.n_asked - resume.n_cached
    slot.n_decoded = resume.n_drawn
    slot.n_drafted = resume.n_drafted
    slot.n_accepted = resume.n_accepted
    slot.n_kept = resume.n_kept
    slot.n_discarded = resume.n_discarded
    slot.truncated = resume.n_discarded > 0
    slot.t_prompt_us = resume.t_prompt_us
    slot.t_sent_us = 0  # the next text is sent at once, so that even engines that end soon make progress
    slot.t_first_us = now_us() - resume.t_predict_us


cdef int32_t _take_again(State *state, Slot *slot, int32_t token) noexcept nogil:
    """Do what sampling and taking the token did, but for the sampling itself. Return 0, or the failure."""
    cdef const Pieces *pieces = state.marked if slot.task.command.flags & TASK_MARKERS else state.pieces
    cdef const char *piece
    cdef int32_t n_piece, n_before = slot.text.n_safe
    if not 0 <= token < state.n_vocab:
        return FAILURE_LOST
    piece = pieces.bytes + pieces.offsets[token]
    n_piece = <int32_t>(pieces.offsets[token + 1] - pieces.offsets[token])
    sampler_accept(slot.sampler, token)
    if slot.matcher != NULL and matcher_accept(slot.matcher, token) < 0:
        return FAILURE_GRAMMAR
    if text_add(&slot.text, token, piece, n_piece) < 0:
        return FAILURE_MEMORY
    slot.answer_bytes += n_piece + TOKEN_JSON_BYTES
    if slot.probs.n_top:
        slot.answer_bytes += (1 + slot.probs.n_top) * PROB_JSON_BYTES
    stops_scan(&slot.text, slot.task.stops, slot.task.command.n_stop)
    if slot.task.command.options.loop_guard:
        loop_guard_add(&slot.loop_guard, token, piece, n_piece)
    if slot.task.command.options.n_indent > 0:
        text_cut_line(&slot.text, slot.task.command.options.n_indent)
    if memchr(slot.text.bytes + n_before, NEW_LINE, <size_t>(slot.text.n_safe - n_before)) != NULL:
        slot.has_new_line = 1
    return 0


cdef int _drop_sent(Text *text, const ResumePoint *resume) noexcept nogil:
    """Drop the text and the tokens that the front has. Return 0, or -1 if it cannot have them."""
    cdef int32_t n_safe = text.n_safe
    if resume.n_bytes_sent > n_safe or resume.n_sent > text.n_tokens:
        return -1
    text.n_safe = <int32_t>resume.n_bytes_sent
    text_sent(text, resume.n_sent)
    text.n_safe = n_safe - <int32_t>resume.n_bytes_sent
    return 0


cdef int32_t _restore_probs(Slot *slot, int32_t n_tokens) noexcept nogil:
    """Restore the probabilities of the tokens that were held back. Return 0, or the failure."""
    if slot.probs.n_top == 0 or n_tokens == 0:
        return 0
    if probs_reserve_for(&slot.probs, n_tokens) < 0:
        return FAILURE_MEMORY
    memcpy(slot.probs.rows, slot.task.probs,
           <size_t>n_tokens * <size_t>(1 + slot.probs.n_top) * sizeof(TokenProb))
    slot.probs.n_tokens = n_tokens
    return 0


cdef int32_t _replay(State *state, Slot *slot) noexcept nogil:
    """Bring the slot into the state after its last drawn token. Return 0, or the failure."""
    cdef const ResumePoint *resume = &slot.task.command.resume
    cdef int32_t i, failure
    _restore_counts(state, slot, resume)
    sample_step_open(state, slot)
    if slot.sampler == NULL or (slot.task.command.grammar and slot.matcher == NULL):
        return FAILURE_SAMPLER
    if slot.matcher != NULL:
        matcher_set_allowance(slot.matcher, -1)
    for i in range(resume.n_drawn):
        failure = _take_again(state, slot, slot.task.drawn[i])
        if failure:
            return failure
    if sampler_return_to(slot.sampler, &resume.mark, resume.n_drawn) < 0 or _drop_sent(&slot.text, resume) < 0:
        return FAILURE_LOST
    slot.mark = slot.marks
    slot.mark[0] = resume.mark
    slot.next_token = slot.task.drawn[resume.n_drawn - 1]
    return _restore_probs(slot, slot.text.n_tokens)


cdef void replay_run(State *state) noexcept nogil:
    """Let the slots decode that have prefilled what an earlier engine had, or what they had before. Call after a
    decode."""
    cdef Slot *slot
    cdef int32_t i, failure
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if slot.task == NULL or slot.n_tokens < slot.n_prefill:
            continue
        if slot_is_recomputing(slot):
            slot.state = SLOT_DECODING
        if not slot_is_replayed(slot):
            continue
        failure = _replay(state, slot)
        if failure:
            finish_failed(state, slot, failure, SAMPLED_TOO_MUCH if failure == FAILURE_GRAMMAR else 0)
