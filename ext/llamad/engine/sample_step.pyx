# Owns: a step's picks, a token for every slot with an output. The engine thread prepares, the sampler threads pick
# (slot_sample.pyx), in parallel, where a device computes from the moment on that a row has arrived (logits_arrival.pyx).
from libc.stdint cimport int32_t, int64_t, uint64_t

from llamad.engine.state cimport State
from llamad.engine.threads.grammar_pool cimport DEFERRAL_NONE, defer_begin, defer_output
from llamad.engine.events cimport finish_done, finish_failed
from llamad.grammar.grammar cimport matcher_open
from llamad.engine.threads.logits_arrival cimport (
    landing_await, landing_await_all, landing_begin, landing_begin_read, landing_can_begin, landing_end, landing_is_soon,
    landing_learn_read, landing_mark_row, landing_overwritten, landing_read_from, landing_rows_in,
)
from llamad.engine.threads.slot_sample cimport PICKED_NOTHING, slot_pick
from llamad.engine.sampler.logprobs cimport probs_reserve
from llamad.engine.prompt_probs cimport take_prompt_probs
from llamad.protocol.wakeup cimport wakeup_front
from llamad.engine.sampler.logits_row cimport row_maxima
from llamad.engine.sampler.sampler cimport Sampler, sampler_accept, sampler_history_wanted, sampler_open
from llamad.engine.kv.slots cimport SLOT_READING, SLOT_WRITING, Slot
from llamad.base.system cimport load_int, now_us, store_int, take_int
from llamad.engine.kv.task_queue cimport Task
from llamad.protocol.messages cimport FAILURE_MEMORY, FAILURE_SAMPLER, STOP_LIMIT, TASK_PROMPT_PROBS, TASK_STREAM, TaskCommand
from llamad.engine.threads.sampler_pool cimport (
    workers_alert, workers_await, workers_begin, workers_end, workers_hurry, workers_is_done, workers_settle,
)

cdef enum:
    ROUSE_US = 100           # before all rows are there the loop is roused, which takes it so long


cdef Sampler *_open_sampler(State *state, const Task *task) noexcept nogil:
    """A sampler that has seen the prompt, or what stands for it; or NULL."""
    cdef const TaskCommand *command = &task.command
    cdef int32_t i, n = min(task.n_penalty, sampler_history_wanted(&command.sampling))
    cdef Sampler *sampler = sampler_open(state.table, state.vocab, state.n_vocab, &command.sampling, task.bias,
                                         command.n_bias, task.breakers, command.n_breakers)
    if sampler != NULL:
        for i in range(task.n_penalty - n, task.n_penalty):
            sampler_accept(sampler, task.penalty[i])
    return sampler


cdef void _begin_writing(State *state, Slot *slot, int64_t now) noexcept nogil:
    """The prompt is read, or nearly."""
    slot.t_first_us = now
    slot.n_processed = slot.task.command.n_prompt - slot.n_cached
    state.stats.n_prompt_tokens += <uint64_t>(slot.task.command.n_prompt - slot.n_cached)
    slot.state = SLOT_WRITING
    slot.sampler = _open_sampler(state, slot.task)
    if slot.task.command.grammar:
        slot.matcher = matcher_open(slot.task.command.grammar)


cdef void _note_first(State *state, Slot *slot, int64_t now) noexcept nogil:
    """Its logits are there."""
    slot.t_prompt_us = now - slot.t_admit_us
    slot.t_first_us = now
    state.stats.prompt_us += slot.t_prompt_us


cdef int32_t _prepare(State *state, int64_t now) noexcept nogil:
    """Leaves the outputs that are to be picked; how many. `now` is 0 where first tokens are still being computed."""
    cdef Slot *slot
    cdef int32_t i, n = 0
    for i in range(state.n_outputs):
        slot = &state.slots.items[state.outputs[i]]
        if slot.task == NULL:
            continue  # failed over its prompt's probabilities
        if slot.state == SLOT_READING:
            _begin_writing(state, slot, now if now else now_us())
            if now:
                _note_first(state, slot, now)
            if slot.task.command.n_predict == 0:
                finish_done(state, slot, STOP_LIMIT, -1)
                continue
        if slot.sampler == NULL or (slot.task.command.grammar and slot.matcher == NULL):
            finish_failed(state, slot, FAILURE_SAMPLER, 0)
            continue
        if probs_reserve(&slot.probs) < 0:
            finish_failed(state, slot, FAILURE_MEMORY, 0)
            continue
        state.outputs[n] = state.outputs[i]
        n += 1
    defer_begin(state.defer, &state.slots, state.outputs, n)
    return n


cdef void _pick(void *arg, int32_t index, int32_t worker) noexcept nogil:
    cdef State *state = <State *>arg
    cdef Slot *slot = &state.slots.items[state.outputs[index]]
    state.picked_rows[worker] = slot.i_row
    if slot.is_filler:
        return
    if state.landing.rows == NULL:
        slot.picked = PICKED_NOTHING
        return
    slot.logits = state.landing.rows + <size_t>slot.i_row * <size_t>state.n_vocab
    slot_pick(slot, state.n_vocab, state.scratch + <size_t>worker * state.scratch_bytes)


cdef void _mark(void *arg, int32_t worker) noexcept nogil:
    """The step goes on meanwhile, so the slot may be somebody else's by now: the row was noted before."""
    cdef State *state = <State *>arg
    landing_mark_row(&state.landing, state.picked_rows[worker])


cdef void _pick_landing(void *arg, int32_t index, int32_t worker) noexcept nogil:
    cdef State *state = <State *>arg
    cdef const Slot *slot = &state.slots.items[state.outputs[index]]
    cdef float *maxima = row_maxima(state.scratch + <size_t>worker * state.scratch_bytes, state.n_vocab)
    cdef int has_maxima = landing_await(state.landing.rows + <size_t>slot.i_row * <size_t>state.n_vocab, state.n_vocab,
                                        maxima, &state.landing.is_over, state.landing.patience_us)
    if 0 < load_int(&state.awaited_row) <= slot.i_row + 1 and take_int(&state.awaited_row):
        wakeup_front(state.channel)
    if not slot.is_filler:
        # Probabilities are told before the pick, with the same scratch.
        slot.sampler.has_maxima = has_maxima and slot.probs.n_top == 0
    _pick(arg, index, worker)


cdef void _pick_arrived(void *arg, int32_t index, int32_t worker) noexcept nogil:
    cdef State *state = <State *>arg
    landing_await_all(&state.landing.is_over, state.landing.patience_us)
    _pick(arg, index, worker)


cdef int32_t _add_fillers(State *state, int32_t n) noexcept nogil:
    """Behind the outputs: nothing is picked from a filler's row, but it has to get its mark. How many there are then."""
    cdef int32_t i
    if state.landing.n_rows and state.plan.n_fillers:
        for i in range(state.slots.n):
            if state.slots.items[i].is_filler:
                state.outputs[n] = i
                n += 1
    return n


cdef int _can_prepare(const State *state) noexcept nogil:
    """Whether everything is ready for picking before the logits of a step with prompts are there: nobody ends with the
    prompt or wants more of its rows."""
    cdef const Slot *slot
    cdef int32_t i
    if state.landing.n_rows == 0:
        return 0
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if slot.state == SLOT_READING and slot.n_planned:
            if slot.task.command.n_predict == 0 or slot.task.command.flags & TASK_PROMPT_PROBS:
                return 0
    return 1


cdef int _in_order(const State *state) noexcept nogil:
    """Whether the rows are the outputs' in the batch's order from the beginning. llama.cpp gives them so for a batch with
    one token for each slot, and for prompts that are one graph."""
    if state.plan.n_rows != state.n_outputs + state.plan.n_fillers:
        return 0
    return state.plan.n_reading_tokens == 0 or (state.plan.is_one_graph and state.plan.n_fillers == 0)


cdef int64_t _await_rows(State *state, int is_landing) noexcept nogil:
    """Returns when all rows are there, and since when they are."""
    cdef float *rows = state.table.rows(state.ctx)
    cdef int64_t t_arrived = now_us()
    cdef int32_t i
    if not is_landing:
        landing_end(&state.landing, rows)
    store_int(&state.landing.is_over, 1)
    workers_hurry(state.workers)
    if not is_landing:
        return t_arrived
    if rows != state.landing.rows:  # never seen
        workers_end(state.workers)
        workers_settle(state.workers)
        landing_end(&state.landing, rows)
    if rows == NULL:
        for i in range(state.n_outputs):
            state.slots.items[state.outputs[i]].picked = PICKED_NOTHING
            store_int(&state.slots.items[state.outputs[i]].deferral, DEFERRAL_NONE)
    state.stats.n_landed += 1
    return t_arrived


cdef void draw_alert(State *state, int64_t t_decode) noexcept nogil:
    """Before a decode. Of one with prompts a device is nearly done when it returns."""
    cdef int32_t n_tokens = state.plan.batch.n_tokens
    if state.plan.n_reading_tokens and state.plan.n_rows > 1 and landing_is_soon(&state.landing, n_tokens):
        workers_alert(state.workers, state.plan.n_rows, landing_read_from(&state.landing, n_tokens, t_decode))


cdef int32_t _awaited_row(const State *state) noexcept nogil:
    """If a client waits for its first token: with which row the last ones come, counted from 1. Else 0."""
    cdef const Slot *slot
    cdef int32_t i
    for i in range(state.n_outputs):
        slot = &state.slots.items[state.outputs[i]]
        if slot.n_decoded == 0 and slot.task.command.flags & TASK_STREAM:
            return max(1, state.plan.n_rows - landing_rows_in(&state.landing, ROUSE_US))
    return 0


cdef int64_t _draw_read(State *state, int64_t t_decode, int is_landing) noexcept nogil:
    """As draw_begin, for a step with prompts, with everything but the picking done while the device computes."""
    cdef Slot *slot
    cdef int32_t i
    cdef int64_t t_arrived
    state.n_outputs = _prepare(state, 0)
    store_int(&state.awaited_row, _awaited_row(state))
    workers_begin(state.workers, _pick_landing if is_landing else _pick_arrived, _mark, state,
                  _add_fillers(state, state.n_outputs),
                  landing_begin_read(&state.landing, state.plan.batch.n_tokens, t_decode))
    t_arrived = _await_rows(state, is_landing)
    for i in range(state.n_outputs):
        slot = &state.slots.items[state.outputs[i]]
        if slot.n_decoded == 0:
            _note_first(state, slot, t_arrived)
    if take_int(&state.awaited_row):
        wakeup_front(state.channel)
    landing_learn_read(&state.landing, state.plan.batch.n_tokens, t_arrived - t_decode)
    return t_arrived


cdef int64_t draw_begin(State *state, int64_t t_decode, int64_t t_decoded) noexcept nogil:
    """Has a token picked for every output, and returns when the device was done with them. draw_next() must follow for
    each of the outputs that are left, and draw_end()."""
    cdef int64_t t_arrived
    cdef int32_t n_rows = state.plan.n_rows
    cdef int is_landing
    if state.plan.n_apart:
        landing_overwritten(&state.landing, 1)
    is_landing = _in_order(state) and landing_can_begin(&state.landing, n_rows)
    landing_overwritten(&state.landing, n_rows)
    if state.n_outputs == 0:
        take_prompt_probs(state)
        return now_us()
    if state.plan.n_reading_tokens and _can_prepare(state):
        return _draw_read(state, t_decode, is_landing)
    # A first token is not reckoned to have come before its logits.
    if is_landing and state.plan.n_reading_tokens == 0:
        state.n_outputs = _prepare(state, now_us())
        workers_begin(state.workers, _pick_landing, _mark, state, _add_fillers(state, state.n_outputs),
                      landing_begin(&state.landing, n_rows, t_decoded + <int64_t>state.plan.wait_us))
        return _await_rows(state, 1)
    # This waits for the device, so that the step's cost is decode's and not sampling's.
    landing_end(&state.landing, state.table.rows(state.ctx))
    t_arrived = now_us()
    take_prompt_probs(state)
    state.n_outputs = _prepare(state, t_arrived)
    workers_begin(state.workers, _pick, _mark, state, _add_fillers(state, state.n_outputs), 0)
    return t_arrived


cdef Slot *draw_next(State *state, int32_t i, int64_t *waited_us) noexcept nogil:
    """The slot of an output that has its token; or NULL, if that comes later. In the order of the outputs, which is the
    order in which rows arrive: the first go on their way while the last are still being picked."""
    cdef Slot *slot = &state.slots.items[state.outputs[i]]
    cdef int64_t t_begin
    if not workers_is_done(state.workers, i):
        t_begin = now_us()
        workers_await(state.workers, i)
        waited_us[0] += now_us() - t_begin
    return NULL if slot.deferral else slot


cdef void draw_end(State *state) noexcept nogil:
    """All have been picked, or are handed over: not before, since who picks late may hold a grammar for long."""
    cdef int32_t i
    workers_end(state.workers)
    for i in range(state.n_outputs):
        defer_output(state.defer, &state.slots.items[state.outputs[i]])


cdef void draw_settle(State *state) noexcept nogil:
    """Before the next decode, which may overwrite every row: all have been read and marked."""
    workers_settle(state.workers)
