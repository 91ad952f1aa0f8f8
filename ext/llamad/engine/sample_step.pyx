# Owns: the sampling of a step: a token for every slot with an output. The engine thread prepares, and the sampler
# threads sample in parallel (slot_sample.pyx); with a GPU, each row as soon as it has arrived (logits_arrival.pyx).
from libc.stdint cimport int32_t, int64_t, uint64_t

from llamad.base.system cimport load_int, now_us, store_int, take_int
from llamad.engine.costs.scheduler cimport LOOP_WAKE_US
from llamad.engine.events cimport emit_progress, finish_done, finish_failed, take_token
from llamad.engine.kv.slots cimport DEFERRAL_NONE, SLOT_DECODING, SLOT_PREFILLING, Slot, slot_is_recomputing
from llamad.engine.kv.task_queue cimport Task
from llamad.engine.prefix.prompt_ends cimport prompt_end_is_wanted, prompt_ends_keep
from llamad.engine.prompt_probs cimport take_prompt_probs
from llamad.engine.sampler.logits_row cimport row_maxima
from llamad.engine.sampler.logprobs cimport probs_reserve
from llamad.engine.sampler.sampler cimport Sampler, sampler_accept, sampler_history_wanted, sampler_mark, sampler_open
from llamad.engine.state.engine_state cimport State
from llamad.engine.threads.grammar_pool cimport grammar_pool_add, grammar_pool_begin
from llamad.engine.threads.logits_arrival cimport (
    arrival_await, arrival_await_all, arrival_begin, arrival_begin_prefill, arrival_can_begin, arrival_end,
    arrival_expect, arrival_is_soon, arrival_learn_prefill, arrival_overwritten, arrival_prefill_from, arrival_reset_row,
    arrival_rows_in,
)
from llamad.engine.threads.sampler_pool cimport (
    AfterFn, sampler_pool_alert, sampler_pool_await, sampler_pool_begin, sampler_pool_drain, sampler_pool_end,
    sampler_pool_hurry, sampler_pool_is_done,
)
from llamad.engine.threads.slot_sample cimport slot_sample, slot_sample_draft, slot_take_row
from llamad.grammar.grammar cimport matcher_open
from llamad.protocol.messages cimport (
    FAILURE_MEMORY, FAILURE_SAMPLER, SAMPLED_NOTHING, STOP_LIMIT, TASK_PROMPT_PROBS, TASK_STREAM, TaskCommand,
)
from llamad.protocol.wakeup cimport wakeup_front


cdef Sampler *_open_sampler(State *state, const Task *task) noexcept nogil:
    """Return a sampler that has accepted the prompt, or its substitute for penalties; or NULL."""
    cdef const TaskCommand *command = &task.command
    cdef int32_t i, n = min(task.n_penalty, sampler_history_wanted(&command.sampling))
    cdef Sampler *sampler = sampler_open(state.table, state.vocab, state.n_vocab, &command.sampling, task.bias,
                                         command.n_bias, task.breakers, command.n_breakers)
    if sampler != NULL:
        for i in range(task.n_penalty - n, task.n_penalty):
            sampler_accept(sampler, task.penalty[i])
    return sampler


cdef void sample_step_open(State *state, Slot *slot) noexcept nogil:
    """Give the slot its sampler and its grammar's matcher, and let it decode. Either may be missing afterwards."""
    slot.state = SLOT_DECODING
    slot.sampler = _open_sampler(state, slot.task)
    if slot.task.command.grammar:
        slot.matcher = matcher_open(slot.task.command.grammar)
    slot.finds_forced = ((state.drafts.fn != NULL or state.drafts.model != NULL)
                         and slot.task.command.options.speculative_n_max != 0)
    slot.n_found = slot.n_forced = 0


cdef void _begin_decoding(State *state, Slot *slot, int64_t now) noexcept nogil:
    """Change the slot to decoding: its prompt is prefilled, or nearly."""
    slot.t_first_us = slot.t_sent_us = now
    slot.n_processed = slot.task.command.n_prompt - slot.n_cached
    state.stats.n_prompt_tokens += <uint64_t>(slot.task.command.n_prompt - slot.n_cached)
    sample_step_open(state, slot)


cdef void _note_first(State *state, Slot *slot, int64_t now) noexcept nogil:
    """Note the time at which the logits of the first token arrived."""
    slot.t_prompt_us = now - slot.t_admit_us
    slot.t_first_us = now
    state.stats.prompt_us += slot.t_prompt_us


cdef int32_t _prepare(State *state, int64_t now) noexcept nogil:
    """Keep only outputs that are to be sampled; return how many. `now` is 0 if the first tokens' logits are pending."""
    cdef Slot *slot
    cdef int32_t i, n = 0
    for i in range(state.n_outputs):
        slot = &state.slots.items[state.outputs[i]]
        if slot.task == NULL:
            continue  # the task failed in take_prompt_probs()
        if slot.state == SLOT_PREFILLING:
            _begin_decoding(state, slot, now if now else now_us())
            if now:
                _note_first(state, slot, now)
            if slot.task.command.options.n_predict == 0:
                finish_done(state, slot, STOP_LIMIT, -1)
                continue
        if slot.sampler == NULL or (slot.task.command.grammar and slot.matcher == NULL):
            finish_failed(state, slot, FAILURE_SAMPLER, 0)
            continue
        if probs_reserve(&slot.probs, 1 + slot.n_draft) < 0:
            finish_failed(state, slot, FAILURE_MEMORY, 0)
            continue
        state.outputs[n] = state.outputs[i]
        n += 1
    grammar_pool_begin(state.grammar_pool, &state.slots, state.outputs, n)
    return n


cdef void _set_nothing(Slot *slot) noexcept nogil:
    slot.samples[0] = SAMPLED_NOTHING
    slot.n_samples = 1


cdef void _sample(void *arg, int32_t index, int32_t worker) noexcept nogil:
    cdef State *state = <State *>arg
    cdef Slot *slot = &state.slots.items[state.outputs[index]]
    state.sampled_rows[worker] = slot.i_row
    if slot.is_filler:
        return
    if state.arrival.rows == NULL:
        _set_nothing(slot)
        return
    slot_sample_draft(slot, state.arrival.rows + <size_t>slot.i_row * <size_t>state.n_vocab, state.n_vocab,
                      state.pieces.is_eog, state.scratch + <size_t>worker * state.scratch_bytes)


cdef void _reset_row(void *arg, int32_t worker) noexcept nogil:
    """Reset the worker's last row. It was noted before, because the slot may have another task by now."""
    cdef State *state = <State *>arg
    arrival_reset_row(&state.arrival, state.sampled_rows[worker])


cdef AfterFn _after_sampling(const State *state) noexcept nogil:
    """Return what follows after a row is sampled: new sentinels, unless the step has one row or drafts. Such rows are
    never awaited one by one."""
    if state.plan.n_rows > 1 and state.plan.n_draft == 0:
        return _reset_row
    return NULL


cdef void _sample_arriving(void *arg, int32_t index, int32_t worker) noexcept nogil:
    cdef State *state = <State *>arg
    cdef const Slot *slot = &state.slots.items[state.outputs[index]]
    cdef float *maxima = row_maxima(state.scratch + <size_t>worker * state.scratch_bytes, state.n_vocab)
    cdef int has_maxima = arrival_await(state.arrival.rows + <size_t>slot.i_row * <size_t>state.n_vocab, state.n_vocab,
                                        maxima, &state.arrival.is_over, state.arrival.patience_us)
    if 0 < load_int(&state.awaited_row) <= slot.i_row + 1 and take_int(&state.awaited_row):
        wakeup_front(state.channel)
    if not slot.is_filler:
        # Probabilities are taken before sampling, with the same scratch.
        slot.sampler.has_maxima = has_maxima and slot.probs.n_top == 0
    _sample(arg, index, worker)


cdef void _sample_arrived(void *arg, int32_t index, int32_t worker) noexcept nogil:
    cdef State *state = <State *>arg
    arrival_await_all(&state.arrival.is_over, state.arrival.patience_us)
    _sample(arg, index, worker)


cdef int32_t _add_fillers(State *state, int32_t n) noexcept nogil:
    """Add the fillers after the outputs: nothing is sampled from a filler's row, but its sentinels must be restored.
    Return how many there are in all."""
    cdef int32_t i
    if state.arrival.n_rows and state.plan.n_fillers:
        for i in range(state.slots.n):
            if state.slots.items[i].is_filler:
                state.outputs[n] = i
                n += 1
    return n


cdef int _can_prepare(const State *state) noexcept nogil:
    """Return whether a step with prompts can be prepared before its logits arrive: no task ends with the prompt or
    needs more of its rows, and none is the first of several completions."""
    cdef const Slot *slot
    cdef int32_t i
    if state.arrival.n_rows == 0:
        return 0
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if slot.state == SLOT_PREFILLING and slot.n_planned and not slot_is_recomputing(slot):
            if slot.task.command.options.n_predict == 0 or slot.task.command.flags & TASK_PROMPT_PROBS:
                return 0
            if prompt_end_is_wanted(state, slot):
                return 0
    return 1


cdef int _in_order(const State *state) noexcept nogil:
    """Return whether the rows are those of the outputs, in batch order. llama.cpp orders them so for a batch with one
    token per slot, and for prompts that form one graph."""
    if state.plan.n_rows != state.n_outputs + state.plan.n_fillers:
        return 0
    return state.plan.n_prefill_tokens == 0 or (state.plan.is_one_graph and state.plan.n_fillers == 0)


cdef int64_t _await_rows(State *state, int is_arriving) noexcept nogil:
    """Wait until all rows have arrived; return the time of arrival."""
    cdef float *rows = state.table.rows(state.ctx)
    cdef int64_t t_arrived = now_us()
    cdef int32_t i
    if not is_arriving:
        arrival_end(&state.arrival, rows)
    store_int(&state.arrival.is_over, 1)
    sampler_pool_hurry(state.sampler_pool)
    if not is_arriving:
        return t_arrived
    if rows != state.arrival.rows:  # has never happened
        sampler_pool_end(state.sampler_pool)
        sampler_pool_drain(state.sampler_pool)
        arrival_end(&state.arrival, rows)
    if rows == NULL:
        for i in range(state.n_outputs):
            _set_nothing(&state.slots.items[state.outputs[i]])
            store_int(&state.slots.items[state.outputs[i]].deferral, DEFERRAL_NONE)
    state.stats.n_landed += 1
    return t_arrived


cdef void sample_step_alert(State *state, int64_t t_decode) noexcept nogil:
    """Prepare for the rows of a decode that is about to begin. If it has prompts, alert the sampler threads: the GPU is
    nearly done when decode() returns."""
    cdef int32_t n_tokens = state.plan.batch.n_tokens
    if state.plan.n_separate == 0 and state.plan.n_draft == 0:
        arrival_expect(&state.arrival, state.plan.n_rows)
    if state.plan.n_prefill_tokens and state.plan.n_rows > 1 and arrival_is_soon(&state.arrival, n_tokens):
        sampler_pool_alert(state.sampler_pool, state.plan.n_rows,
                           arrival_prefill_from(&state.arrival, n_tokens, t_decode))


cdef int32_t _awaited_row(const State *state) noexcept nogil:
    """If a client waits for its first token, return the row at which the event loop is woken, counted from 1. Otherwise
    return 0."""
    cdef const Slot *slot
    cdef int32_t i
    for i in range(state.n_outputs):
        slot = &state.slots.items[state.outputs[i]]
        if slot.n_decoded == 0 and slot.task.command.flags & TASK_STREAM:
            return max(1, state.plan.n_rows - arrival_rows_in(&state.arrival, LOOP_WAKE_US))
    return 0


cdef int64_t _begin_prefilled(State *state, int64_t t_decode, int is_arriving) noexcept nogil:
    """Begin a step with prompts: prepare everything while the GPU computes. See sample_step_begin()."""
    cdef Slot *slot
    cdef int32_t i
    cdef int64_t t_arrived
    state.n_outputs = _prepare(state, 0)
    store_int(&state.awaited_row, _awaited_row(state))
    sampler_pool_begin(state.sampler_pool, _sample_arriving if is_arriving else _sample_arrived,
                       _after_sampling(state), state, _add_fillers(state, state.n_outputs),
                       arrival_begin_prefill(&state.arrival, state.plan.batch.n_tokens, t_decode))
    t_arrived = _await_rows(state, is_arriving)
    for i in range(state.n_outputs):
        slot = &state.slots.items[state.outputs[i]]
        if slot.n_decoded == 0:
            _note_first(state, slot, t_arrived)
    if take_int(&state.awaited_row):
        wakeup_front(state.channel)
    arrival_learn_prefill(&state.arrival, state.plan.batch.n_tokens, t_arrived - t_decode)
    return t_arrived


cdef int64_t sample_step_begin(State *state, int64_t t_decode, int64_t t_decoded) noexcept nogil:
    """Start sampling a token for every output, and return the time at which the logits arrived. sample_step_next() must
    follow for each remaining output, then sample_step_end()."""
    cdef int64_t t_arrived
    cdef int32_t n_rows = state.plan.n_rows
    cdef int is_arriving
    if state.plan.n_prefill_tokens:
        emit_progress(state, t_decoded)
    if state.plan.n_separate:
        arrival_overwritten(&state.arrival, 1)
    is_arriving = _in_order(state) and arrival_can_begin(&state.arrival, n_rows)
    arrival_overwritten(&state.arrival, n_rows)
    if state.n_outputs == 0:
        take_prompt_probs(state)
        return now_us()
    if state.plan.n_prefill_tokens and _can_prepare(state):
        return _begin_prefilled(state, t_decode, is_arriving)
    # A first token must not count as sampled before its logits arrive.
    if is_arriving and state.plan.n_prefill_tokens == 0:
        state.n_outputs = _prepare(state, now_us())
        sampler_pool_begin(state.sampler_pool, _sample_arriving, _after_sampling(state), state,
                           _add_fillers(state, state.n_outputs),
                           arrival_begin(&state.arrival, n_rows, t_decoded + <int64_t>state.plan.wait_us))
        return _await_rows(state, 1)
    # This waits for the GPU, so that the step's cost counts as decode and not as sampling.
    arrival_end(&state.arrival, state.table.rows(state.ctx))
    t_arrived = now_us()
    take_prompt_probs(state)
    prompt_ends_keep(state)
    state.n_outputs = _prepare(state, t_arrived)
    sampler_pool_begin(state.sampler_pool, _sample, _after_sampling(state), state,
                       _add_fillers(state, state.n_outputs), 0)
    return t_arrived


cdef void sample_step_alone(State *state, Slot *slot, const float *row) noexcept nogil:
    """Sample the first token of a slot that holds its whole prompt, from a kept row: nothing is decoded."""
    cdef int64_t now = now_us()
    sampler_pool_drain(state.sampler_pool)  # this uses the scratch memory of the first sampler thread
    state.n_outputs = 1
    state.outputs[0] = slot.id
    state.n_outputs = _prepare(state, now)
    if state.n_outputs == 0:
        return
    if slot_take_row(slot, row, state.n_vocab) < 0:
        finish_failed(state, slot, FAILURE_MEMORY, 0)
        return
    slot_sample(slot, state.n_vocab, state.scratch)
    if slot.deferral:
        grammar_pool_add(state.grammar_pool, slot)
    else:
        slot.mark = slot.marks
        sampler_mark(slot.sampler, slot.mark)
        take_token(state, slot, slot.sampled, now_us())


cdef Slot *sample_step_next(State *state, int32_t i, int64_t *waited_us) noexcept nogil:
    """Return the slot of an output when it has its tokens, or all but one that a grammar thread will sample. Call it in
    the order of the outputs, in which the rows arrive: the first are sent while the last are still being sampled."""
    cdef Slot *slot = &state.slots.items[state.outputs[i]]
    cdef int64_t t_begin
    if not sampler_pool_is_done(state.sampler_pool, i):
        t_begin = now_us()
        sampler_pool_await(state.sampler_pool, i)
        waited_us[0] += now_us() - t_begin
    return slot


cdef void sample_step_end(State *state) noexcept nogil:
    """End the round after all outputs were taken, and hand deferred slots to the grammar threads. Not earlier, because
    a late sampler thread may hold a grammar for long."""
    cdef int32_t i
    sampler_pool_end(state.sampler_pool)
    for i in range(state.n_outputs):
        grammar_pool_add(state.grammar_pool, &state.slots.items[state.outputs[i]])


cdef void sample_step_drain(State *state) noexcept nogil:
    """Wait until all rows have been read and reset, because the next decode may overwrite them."""
    sampler_pool_drain(state.sampler_pool)
