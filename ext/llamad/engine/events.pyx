# Owns: the events of a task, and how it ends. Runs on the engine thread. The last event of a task is always exactly one
# of done and failed.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy, memset

from llamad.base.system cimport load_time, now_us, sleep_us, store_int, store_time, wake_send
from llamad.engine.cache.cache_saves cimport cache_release
from llamad.engine.kv.slots cimport SLOT_PREFILLING, Slot, slot_is_recomputing, slot_release
from llamad.engine.kv.task_queue cimport task_close
from llamad.engine.prefix.restoring cimport restoring_end
from llamad.engine.sampler.logprobs cimport probs_sent
from llamad.engine.sampler.sampler cimport sampler_close
from llamad.engine.state.engine_state cimport State
from llamad.engine.threads.grammar_pool cimport grammar_pool_drop
from llamad.grammar.grammar cimport matcher_close
from llamad.protocol.messages cimport (
    EVENT_ACTION, EVENT_ADMITTED, EVENT_DONE, EVENT_FAILED, EVENT_PROGRESS, EVENT_PROMPT, EVENT_STEP, EVENT_TEXT,
    FAILURE_ABORTED, FAILURE_GRAMMAR, FAILURE_MEMORY, FAILURE_SAMPLER, PROB_JSON_BYTES, SAMPLED_END, SAMPLED_STUCK,
    STOP_EOS, STOP_LIMIT, STOP_LOOP, STOP_WORD, TASK_CONTEXT_SHIFT, TASK_MARKERS, TASK_PROGRESS, TASK_STREAM,
    TOKEN_JSON_BYTES, ActionEvent, AdmittedEvent, DoneEvent, FailedEvent, ProgressEvent, StepEvent, StepSlot, TextEvent,
    TokenProb,
)
from llamad.protocol.ring cimport ring_commit, ring_reserve
from llamad.tokenizer.detokenizer cimport text_add, text_cut_line, text_finish, text_ready, text_sent
from llamad.tokenizer.loop_guard cimport loop_guard_add
from llamad.tokenizer.stop_strings cimport stops_scan
from llamad.tokenizer.vocab cimport Pieces

cdef enum:
    FLUSH_BYTES = 4096       # a task that does not stream sends at most this much at once
    FLUSH_TOKENS = 1024
    FLUSH_PROBS = 8192       # rows of probabilities, 8 bytes each
    SAVE_TOKENS = 16         # it sends what it has after so many tokens, and
    SAVE_US = 200000        # after this time, so that another engine can go on if this one ends
    AHEAD_BYTES_MAX = 262144  # of tokens that are held back and their probabilities, in one event
    FULL_PAUSE_US = 200
    NEW_LINE = 10


cdef void emit_wake(State *state) noexcept nogil:
    """Wake the event loop to read events, and note the time for it."""
    store_int(&state.channel.head.is_emitting, 0)
    if load_time(&state.channel.head.t_wake_us) == 0:
        store_time(&state.channel.head.t_wake_us, now_us())
    wake_send(state.channel.event_fd)


cdef void *_reserve(State *state, uint32_t kind, uint64_t n) noexcept nogil:
    """Return room for an event. If the ring is full, wait for the event loop, which is far behind."""
    cdef void *payload = ring_reserve(&state.channel.events, kind, n)
    while payload == NULL:
        emit_wake(state)
        sleep_us(FULL_PAUSE_US)
        payload = ring_reserve(&state.channel.events, kind, n)
    return payload


cdef void _commit(State *state) noexcept nogil:
    ring_commit(&state.channel.events)
    state.is_dirty = 1


cdef void emit_admitted(State *state, Slot *slot) noexcept nogil:
    cdef AdmittedEvent *event = <AdmittedEvent *>_reserve(state, EVENT_ADMITTED, sizeof(AdmittedEvent))
    event.id = slot.task.command.id
    event.slot = slot.id
    event.n_cached = slot.n_cached
    event.t_us = slot.t_admit_us
    _commit(state)


cdef void emit_progress(State *state, int64_t now) noexcept nogil:
    """Emit the prefill progress of tasks in this decode whose clients asked for it."""
    cdef const Slot *slot
    cdef ProgressEvent *event
    cdef int32_t i
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if slot.state != SLOT_PREFILLING or slot.n_planned == 0 or not slot.task.command.flags & TASK_PROGRESS:
            continue
        if slot_is_recomputing(slot):
            continue
        event = <ProgressEvent *>_reserve(state, EVENT_PROGRESS, sizeof(ProgressEvent))
        event.id = slot.task.command.id
        event.t_prompt_us = now - slot.t_admit_us
        event.n_processed = slot.n_tokens
        _commit(state)


cdef void emit_failed(State *state, uint64_t id, int32_t failure, int32_t code) noexcept nogil:
    cdef FailedEvent *event = <FailedEvent *>_reserve(state, EVENT_FAILED, sizeof(FailedEvent))
    event.id = id
    event.failure = failure
    event.code = code
    _commit(state)
    if failure == FAILURE_ABORTED:
        state.stats.n_aborted += 1


cdef void emit_action(State *state, uint64_t id, const ActionEvent *outcome) noexcept nogil:
    cdef ActionEvent *event = <ActionEvent *>_reserve(state, EVENT_ACTION, sizeof(ActionEvent))
    event[0] = outcome[0]
    event.id = id
    _commit(state)


cdef char *_put(char *room, const void *data, size_t n) noexcept nogil:
    """Copy n bytes, and return where the next ones go."""
    if n:
        memcpy(room, data, n)
    return room + n


cdef void _write_text(State *state, Slot *slot, int64_t now, int32_t n_tokens, int32_t n_prob_tokens,
                      int32_t n_bytes, int is_last) noexcept nogil:
    """Write one event with the first tokens, probabilities and bytes that wait, and with what another engine needs to
    go on from here. After the last text none goes on."""
    cdef size_t n_row = <size_t>(1 + slot.probs.n_top) * sizeof(TokenProb)
    cdef size_t n_ids = <size_t>n_tokens * sizeof(int32_t), n_draws = <size_t>slot.mark.head.n_xtc * sizeof(int32_t)
    cdef size_t n_probs = <size_t>n_prob_tokens * n_row
    cdef size_t n_ahead = 0 if is_last else <size_t>(slot.text.n_tokens - n_tokens)
    cdef size_t n_ahead_probs = n_ahead * n_row if slot.probs.n_top else 0
    cdef int is_too_much = n_ahead * sizeof(int32_t) + n_ahead_probs > AHEAD_BYTES_MAX
    cdef TextEvent *event
    cdef char *room
    if is_too_much:
        n_ahead = n_ahead_probs = 0
    event = <TextEvent *>_reserve(state, EVENT_TEXT, sizeof(TextEvent) + n_draws + n_ids + n_probs + <size_t>n_bytes
                                  + n_ahead * sizeof(int32_t) + n_ahead_probs)
    event.id = slot.task.command.id
    event.t_us = now
    event.t_prompt_us = slot.t_prompt_us
    event.t_predict_us = now - slot.t_first_us
    event.n_decoded = slot.n_decoded
    event.n_drafted = slot.n_drafted
    event.n_accepted = slot.n_accepted
    event.n_tokens = n_tokens
    event.n_prob_tokens = n_prob_tokens
    event.n_top = slot.probs.n_top
    event.n_bytes = n_bytes
    event.n_ahead = -1 if is_last or is_too_much else <int32_t>n_ahead
    event.n_kept = slot.n_kept
    event.n_discarded = slot.n_discarded
    event.mark = slot.mark.head
    room = _put(<char *>(event + 1), slot.mark.xtc, n_draws)
    room = _put(room, slot.text.tokens, n_ids)
    room = _put(room, slot.probs.rows, n_probs)
    room = _put(room, slot.text.bytes, <size_t>n_bytes)
    room = _put(room, slot.text.tokens + n_tokens, n_ahead * sizeof(int32_t))
    _put(room, slot.probs.rows + <size_t>n_tokens * <size_t>(1 + slot.probs.n_top), n_ahead_probs)
    _commit(state)
    slot.t_sent_us = now


cdef int32_t _flush_tokens(const Slot *slot) noexcept nogil:
    """Return how many tokens one event may carry: it must stay much smaller than the ring."""
    return max(1, min(<int32_t>FLUSH_TOKENS, FLUSH_PROBS // (1 + slot.probs.n_top)))


cdef void _emit_text(State *state, Slot *slot, int64_t now, int32_t n_tokens, int is_last) noexcept nogil:
    """Send the safe text and the first n_tokens. Their probabilities are sent too, except for tokens that were cut off
    with a stop string or a line. is_last: the task ends."""
    cdef int32_t n_max = _flush_tokens(slot), n, n_prob_tokens = 0, n_bytes = slot.text.n_safe
    if slot.probs.n_top:
        n_prob_tokens = min(n_tokens, text_ready(&slot.text))
    while True:
        n = min(n_tokens, n_max)
        _write_text(state, slot, now, n, min(n, n_prob_tokens), n_bytes, is_last)
        text_sent(&slot.text, n)
        probs_sent(&slot.probs, n)
        n_tokens -= n
        n_prob_tokens = max(0, n_prob_tokens - n)
        n_bytes = 0
        if n_tokens == 0:
            return


cdef void emit_prompt(State *state, Slot *slot, int32_t i_first, int32_t n_tokens) noexcept nogil:
    """Emit tokens of the prompt with their probabilities, which are in the slot's first rows."""
    cdef int32_t n_max = _flush_tokens(slot), stride = 1 + slot.probs.n_top, i = 0, n
    cdef size_t n_ids, n_probs
    cdef TextEvent *event
    while i < n_tokens:
        n = min(n_tokens - i, n_max)
        n_ids = <size_t>n * sizeof(int32_t)
        n_probs = <size_t>n * <size_t>stride * sizeof(TokenProb)
        event = <TextEvent *>_reserve(state, EVENT_PROMPT, sizeof(TextEvent) + n_ids + n_probs)
        memset(event, 0, sizeof(TextEvent))
        event.id = slot.task.command.id
        event.n_tokens = event.n_prob_tokens = n
        event.n_top = slot.probs.n_top
        memcpy(event + 1, slot.task.prompt + i_first + i, n_ids)
        memcpy(<char *>(event + 1) + n_ids, slot.probs.rows + <size_t>i * <size_t>stride, n_probs)
        _commit(state)
        i += n


cdef void _let_go(State *state, Slot *slot) noexcept nogil:
    grammar_pool_drop(state.grammar_pool, slot)
    if slot.t_first_us:
        state.stats.predict_us += now_us() - slot.t_first_us
    if state.drafts.end != NULL:
        state.drafts.end(state.drafts.arg, slot)
    if slot.held_entry:
        cache_release(&state.cache, slot.held_entry)
    restoring_end(state, slot)
    sampler_close(slot.sampler)
    matcher_close(slot.matcher)
    task_close(slot.task)
    slot_release(&state.slots, slot)
    state.n_released += 1


cdef void finish_done(State *state, Slot *slot, int32_t stop_type, int32_t stop_word) noexcept nogil:
    """End a task that is done: emit its remaining text, then the done event."""
    cdef DoneEvent *event
    cdef int64_t now = now_us()
    grammar_pool_drop(state.grammar_pool, slot)  # before its text and probabilities are touched
    text_finish(&slot.text)
    if slot.task.command.options.n_indent > 0:
        text_cut_line(&slot.text, slot.task.command.options.n_indent)
    if memchr(slot.text.bytes, NEW_LINE, <size_t>slot.text.n_bytes) != NULL:
        slot.has_new_line = 1
    if slot.text.n_tokens or slot.text.n_bytes:
        _emit_text(state, slot, now, slot.text.n_tokens, 1)
    event = <DoneEvent *>_reserve(state, EVENT_DONE, sizeof(DoneEvent))
    event.id = slot.task.command.id
    event.t_us = now
    event.t_prompt_us = slot.t_prompt_us
    event.t_predict_us = now - slot.t_first_us
    event.slot = slot.id
    event.n_prompt = slot.task.command.n_asked
    event.n_cached = slot.n_cached
    event.n_decoded = slot.n_decoded
    event.n_drafted = slot.n_drafted
    event.n_accepted = slot.n_accepted
    event.n_slot_tokens = slot.n_tokens + slot.n_held
    event.stop_type = stop_type
    event.stop_word = stop_word
    event.truncated = slot.truncated
    event.has_new_line = slot.has_new_line
    _commit(state)
    _let_go(state, slot)


cdef void finish_failed(State *state, Slot *slot, int32_t failure, int32_t code) noexcept nogil:
    emit_failed(state, slot.task.command.id, failure, code)
    _let_go(state, slot)


cdef int _is_full(const State *state, const Slot *slot) noexcept nogil:
    """Return whether the context has no room for another token and may not shift."""
    if slot.n_tokens + slot.n_held + 1 < state.slots.n_ctx:
        return 0
    return slot.task.command.options.n_predict == -2 or not slot.task.command.flags & TASK_CONTEXT_SHIFT


cdef int _is_endless(const State *state, const Slot *slot) noexcept nogil:
    """Return whether a task without a limit has reached the maximum length; it would shift its context forever."""
    return (slot.task.command.options.n_predict == -1 and state.n_text_max > 0
            and slot.task.command.n_asked + slot.n_decoded >= state.n_text_max)


cdef int _is_large(const Slot *slot) noexcept nogil:
    return slot.task.command.answer_bytes_max and slot.answer_bytes >= slot.task.command.answer_bytes_max


cdef void take_token(State *state, Slot *slot, int32_t token, int64_t now) noexcept nogil:
    """Take a token that was sampled for the slot: send what may be sent, and decide whether the task continues."""
    cdef int32_t word, n_new, n_ready, n_chunk
    cdef int64_t t_max_us = <int64_t>slot.task.command.options.t_max_predict_ms * 1000
    cdef const Pieces *pieces
    cdef const char *piece
    if token == SAMPLED_END:
        finish_done(state, slot, STOP_EOS, -1)
        return
    if token < 0 or token >= state.n_vocab:
        finish_failed(state, slot, FAILURE_GRAMMAR if token <= SAMPLED_STUCK else FAILURE_SAMPLER, token)
        return
    slot.next_token = token
    slot.n_decoded += 1
    state.stats.n_predicted += 1
    pieces = state.marked if slot.task.command.flags & TASK_MARKERS else state.pieces
    piece = pieces.bytes + pieces.offsets[token]
    n_chunk = <int32_t>(pieces.offsets[token + 1] - pieces.offsets[token])
    if text_add(&slot.text, token, piece, n_chunk) < 0:
        finish_failed(state, slot, FAILURE_MEMORY, 0)
        return
    slot.answer_bytes += n_chunk + TOKEN_JSON_BYTES
    if slot.probs.n_top:
        slot.probs.n_tokens += 1
        slot.probs.n_ahead = max(0, slot.probs.n_ahead - 1)
        slot.answer_bytes += (1 + slot.probs.n_top) * PROB_JSON_BYTES
    n_new = slot.text.n_safe
    word = stops_scan(&slot.text, slot.task.stops, slot.task.command.n_stop)
    if slot.task.command.options.n_indent > 0 and text_cut_line(&slot.text, slot.task.command.options.n_indent):
        finish_done(state, slot, STOP_LIMIT, -1)
        return
    if word >= 0:
        finish_done(state, slot, STOP_WORD, word)
        return
    if state.pieces.is_eog[token]:
        finish_done(state, slot, STOP_EOS, -1)
        return
    if slot.task.command.options.loop_guard and loop_guard_add(&slot.loop_guard, token, piece, n_chunk):
        state.stats.n_loops += 1
        finish_done(state, slot, STOP_LOOP, -1)
        return
    if memchr(slot.text.bytes + n_new, NEW_LINE, <size_t>(slot.text.n_safe - n_new)) != NULL:
        slot.has_new_line = 1
        if t_max_us and now - slot.t_first_us > t_max_us:
            finish_done(state, slot, STOP_LIMIT, -1)
            return
    if slot.task.command.options.n_predict >= 0 and slot.n_decoded >= slot.task.command.options.n_predict:
        finish_done(state, slot, STOP_LIMIT, -1)
        return
    if _is_full(state, slot) or _is_endless(state, slot) or _is_large(slot):
        slot.truncated = 1
        finish_done(state, slot, STOP_LIMIT, -1)
        return
    # Tokens without text accumulate too.
    n_ready = text_ready(&slot.text)
    if slot.text.n_safe >= FLUSH_BYTES or n_ready >= _flush_tokens(slot):
        _emit_text(state, slot, now, n_ready, 0)
    elif slot.text.n_safe > 0 and (slot.task.command.flags & TASK_STREAM or n_ready >= SAVE_TOKENS
                                   or now - slot.t_sent_us > SAVE_US):
        _emit_text(state, slot, now, n_ready, 0)


cdef void emit_step(State *state, int64_t t_decode, int64_t t_wait, int64_t t_sample, int64_t t_emit,
                    int64_t t_end) noexcept nogil:
    """Emit a row of the step trace. It includes slots whose task ended in this step, because it follows the plan."""
    cdef int32_t i, n = 0
    cdef StepEvent *event
    cdef StepSlot *row
    for i in range(state.plan.batch.n_tokens):
        if i == 0 or state.plan.seq_ids[i] != state.plan.seq_ids[i - 1]:
            n += 1
    event = <StepEvent *>_reserve(state, EVENT_STEP, sizeof(StepEvent) + <uint64_t>n * sizeof(StepSlot))
    row = <StepSlot *>(event + 1) - 1
    event.step = state.stats.n_steps
    event.t_us = t_end
    event.plan_us = <int32_t>state.plan.plan_us
    event.decode_us = <int32_t>(t_wait - t_decode)
    event.wait_us = <int32_t>(t_sample - t_wait)
    event.sample_us = <int32_t>(t_emit - t_sample)
    event.emit_us = <int32_t>(t_end - t_emit)
    event.budget = state.plan.budget
    event.n_tokens = state.plan.batch.n_tokens
    event.n_decoding = state.plan.n_decoding
    event.n_fillers = state.plan.n_fillers + state.plan.n_padding
    event.n_media = state.plan.n_media
    event.n_slots = n
    for i in range(state.plan.batch.n_tokens):
        if i == 0 or state.plan.seq_ids[i] != state.plan.seq_ids[i - 1]:
            row += 1
            row.slot = state.plan.seq_ids[i]
            row.n_tokens = 0
            row.is_decoding = state.plan.is_decode[i]
        row.n_tokens += 1
    _commit(state)
