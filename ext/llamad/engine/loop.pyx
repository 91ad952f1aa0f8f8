# Owns: the loop of the engine thread. One turn is a step: take commands, admit, fill the batch, decode, sample, emit,
# wake the front (with a GPU, while it computes the next step). Never creates a Python object, never takes the GIL, and
# never waits for the event loop, except if the event ring is full or more requests of a burst are on their way.
# sample_step.pyx samples tokens; events.pyx handles them.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from llamad.base.system cimport load_int, now_us, relax, store_int, wake_wait
from llamad.base.function_table cimport llamad_batch
from llamad.engine.admission cimport admission_announce, admission_drop, admission_expire, admission_run
from llamad.engine.cache.staging cimport staging_free
from llamad.engine.prefix.checkpointing cimport checkpointing_run
from llamad.engine.context_shift cimport context_make_room
from llamad.engine.costs.scheduler cimport GATHER_SLEEP_MS, GATHER_SPIN_US
from llamad.engine.decode_faults cimport faults_adapters, faults_decode, faults_isolate, faults_media, faults_passed
from llamad.engine.draft_step cimport (
    draft_step_computes, draft_step_follow, draft_step_plan, draft_step_take, draft_step_take_deferred,
)
from llamad.engine.events cimport emit_failed, emit_step, emit_wake, finish_failed
from llamad.engine.kv.slots cimport Slot, slot_advance
from llamad.engine.kv.task_queue cimport Task, queue_add, queue_find, task_close, task_has_rows, task_open
from llamad.engine.media_step cimport media_step_run
from llamad.engine.prefix.parking cimport (
    parking_may_save, parking_save_beside, parking_save_last, parking_save_next, parking_timeout_ms,
)
from llamad.engine.prefix.prompt_ends cimport prompt_ends_free, prompt_ends_run
from llamad.engine.publish cimport publish_counts, publish_rest, publish_task, publish_turn
from llamad.engine.replay cimport replay_run
from llamad.engine.sample_step cimport (
    sample_step_alert, sample_step_begin, sample_step_drain, sample_step_end, sample_step_next,
)
from llamad.engine.scheduler.adapter_turns cimport turns_choose
from llamad.engine.scheduler.batch cimport batch_fill, batch_learn, batch_part
from llamad.engine.scheduler.fillers cimport fillers_remove
from llamad.engine.scheduler.padding cimport padding_remove
from llamad.engine.scheduler.plan cimport Plan
from llamad.engine.shares cimport shares_run
from llamad.engine.slot_actions cimport actions_add, actions_drop, actions_drop_all, actions_run
from llamad.engine.state.engine_state cimport State
from llamad.engine.suspension cimport suspension_run
from llamad.protocol.messages cimport (
    COMMAND_ABORT, COMMAND_ACTION, COMMAND_FORGET, COMMAND_PAUSE, COMMAND_RESUME, COMMAND_STOP, COMMAND_TASK,
    FAILURE_ABORTED, FAILURE_ENGINE, FAILURE_LOST, FAILURE_MEMORY, RESULT_ABORTED, RESULT_ENGINE, ActionCommand,
    TaskCommand, TaskRef,
)
from llamad.protocol.ring cimport ring_is_empty, ring_peek, ring_release

# --- commands -------------------------------------------------------------------------------------------------

cdef Slot *_slot_of(State *state, uint64_t id) noexcept nogil:
    cdef int32_t i
    for i in range(state.slots.n):
        if state.slots.items[i].task != NULL and state.slots.items[i].task.command.id == id:
            return &state.slots.items[i]
    return NULL


cdef void _on_task(State *state, const TaskCommand *command) noexcept nogil:
    cdef Task *task = task_open(command)
    if task == NULL:
        emit_failed(state, command.id, FAILURE_MEMORY, 0)
    elif not task_has_rows(task, <size_t>state.n_row * sizeof(float)) or (command.n_runs and not state.n_row):
        emit_failed(state, command.id, FAILURE_LOST, 0)
        task_close(task)
    else:
        queue_add(&state.queue, task)


cdef void _on_abort(State *state, uint64_t id) noexcept nogil:
    # A task that has just ended by itself is in neither place; its last event is on the way.
    cdef Slot *slot = _slot_of(state, id)
    cdef Task *task
    if slot != NULL:
        finish_failed(state, slot, FAILURE_ABORTED, 0)
        return
    task = queue_find(&state.queue, id)
    if task != NULL:
        admission_drop(state, task, FAILURE_ABORTED)
    else:
        actions_drop(state, id)


cdef void _on_pause(State *state, uint64_t id, int32_t is_paused) noexcept nogil:
    cdef Slot *slot = _slot_of(state, id)
    cdef Task *task = slot.task if slot != NULL else queue_find(&state.queue, id)
    if task != NULL:
        task.is_paused = is_paused


cdef void _take_commands(State *state) noexcept nogil:
    cdef uint32_t kind = 0
    cdef uint64_t n = 0
    cdef void *payload = ring_peek(&state.channel.commands, &kind, &n)
    while payload != NULL:
        if kind == COMMAND_TASK:
            publish_task(state, (<const TaskCommand *>payload).id)
            _on_task(state, <const TaskCommand *>payload)
            publish_task(state, 0)
        elif kind == COMMAND_ABORT:
            _on_abort(state, (<TaskRef *>payload).id)
        elif kind == COMMAND_PAUSE or kind == COMMAND_RESUME:
            _on_pause(state, (<TaskRef *>payload).id, kind == COMMAND_PAUSE)
        elif kind == COMMAND_ACTION:
            actions_add(state, <const ActionCommand *>payload)
        elif kind == COMMAND_FORGET:
            sample_step_drain(state)
            state.table.close_adapter(state.ctx, <int32_t>(<TaskRef *>payload).id)
        elif kind == COMMAND_STOP:
            state.stopping = 1
        ring_release(&state.channel.commands)
        payload = ring_peek(&state.channel.commands, &kind, &n)


cdef void _gather(State *state) noexcept nogil:
    """Wait for the rest of a burst of tasks (client/wakeup.py). Each is admitted while the event loop reads the next;
    they are announced together, because all wait for the last. If the event loop is busy with something else, sleep."""
    cdef int64_t t_end
    if not load_int(&state.channel.head.is_gathering):
        return
    t_end = now_us() + GATHER_SPIN_US
    while load_int(&state.channel.head.is_gathering):
        _take_commands(state)
        if state.stopping:
            return
        if state.actions == NULL:  # otherwise the actions come first (actions_run)
            admission_run(state, 0)
        if now_us() < t_end:
            relax()
        else:
            publish_counts(state)
            wake_wait(state.channel.command_fd, GATHER_SLEEP_MS)
    admission_announce(state)


# --- decode ---------------------------------------------------------------------------------------------------

cdef void _fail_all(State *state, int32_t failure) noexcept nogil:
    cdef int32_t i
    for i in range(state.slots.n):
        if state.slots.items[i].task != NULL:
            finish_failed(state, &state.slots.items[i], failure, 0)


cdef int32_t _decode_part(State *state, int32_t first, int32_t end) noexcept nogil:
    """Decode a range of the batch. Return 0, or llama.cpp's code."""
    cdef llamad_batch batch = batch_part(&state.plan, first, end)
    cdef int32_t i
    state.stats.n_decodes += 1
    for i in range(state.slots.n):
        state.stats.n_busy += state.slots.items[i].task != NULL
    return state.table.decode(state.ctx, &batch)


cdef int32_t _set_adapters(State *state) noexcept nogil:
    """Set the adapters whose turn it is. Return 0, or llama.cpp's code."""
    cdef const Slot *slot = state.plan.turns.slot
    cdef int32_t n = 0
    if slot != NULL:
        n = (slot.task.command.n_base_adapters if slot.n_tokens < slot.adapters.n_base
             else slot.task.command.n_adapters)
    if n == 0 and not state.has_adapters:
        return 0
    state.has_adapters = n > 0
    return state.table.set_adapters(state.ctx, slot.task.adapters if n else NULL, n)


cdef int32_t _decode(State *state) noexcept nogil:
    """Decode the batch. Return 0, or llama.cpp's code after decode_faults.pyx has handled it; nothing is sampled
    then."""
    cdef int32_t code = 0, n_separate = state.plan.n_separate, n_tokens = state.plan.batch.n_tokens
    if n_separate:
        code = _decode_part(state, 0, n_separate)
        if code != 0:
            faults_decode(state, code, 0, n_separate)
            return code
        padding_remove(&state.plan, &state.slots)
    if n_separate < n_tokens:
        code = _decode_part(state, n_separate, n_tokens)
        if code != 0:
            faults_decode(state, code, n_separate, n_tokens)
            return code
        if not state.plan.is_separate:
            padding_remove(&state.plan, &state.slots)
    return code


cdef void _apply(State *state) noexcept nogil:
    """Update the slots after a decode: they hold the tokens of the batch now."""
    cdef Slot *slot
    cdef int32_t i
    state.n_outputs = 0
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if slot.n_planned == 0:
            continue
        slot_advance(slot, slot.n_planned)
        state.stats.n_tokens_max = max(state.stats.n_tokens_max, <uint64_t>slot.n_tokens)
        if slot.i_output >= 0 and not slot.is_filler:
            state.outputs[state.n_outputs] = i
            state.n_outputs += 1


# --- the loop -------------------------------------------------------------------------------------------------

cdef void _wake(State *state) noexcept nogil:
    publish_counts(state)
    if state.is_dirty:
        state.is_dirty = 0
        emit_wake(state)
    else:
        store_int(&state.channel.head.is_emitting, 0)


cdef int _can_wake_later(const State *state) noexcept nogil:
    """Return whether the front can be woken for the tokens of the last step after the next step is launched, so that a
    GPU does not wait for it. Nothing else may be to be done before, and a launch may not take long: where the host
    computes, it takes a whole step."""
    return (state.plan.has_device and 2 * state.plan.wait_us > state.plan.decode_step_us
            and state.plan.n_prefilling == 0 and not draft_step_computes(state) and state.queue.first == NULL
            and state.actions == NULL and state.slots.n_suspended == 0 and ring_is_empty(&state.channel.commands)
            and not load_int(&state.channel.head.is_gathering))


cdef int _is_launched_soon(const Plan *plan) noexcept nogil:
    """Return whether the step only decodes: prompts, media and other adapters take longer before a GPU computes."""
    return (plan.n_decoding > 0 and plan.n_prefill_tokens == 0 and plan.media_slot == NULL
            and not plan.turns.is_new)


cdef int _timeout_ms(const State *state, int64_t now) noexcept nogil:
    """Return the time until the next deadline or the next prefix to save; -1: no limit."""
    cdef int64_t first = 0
    cdef const Task *task = state.queue.first
    cdef int32_t i
    cdef int parking_ms = parking_timeout_ms(state, now), ms
    while task != NULL:
        if task.command.deadline_us and (first == 0 or task.command.deadline_us < first):
            first = task.command.deadline_us
        task = task.next
    for i in range(state.slots.n):
        task = state.slots.items[i].task
        if task != NULL and task.command.deadline_us and (first == 0 or task.command.deadline_us < first):
            first = task.command.deadline_us
    ms = -1 if first == 0 else <int>max(<int64_t>0, min((first - now) // 1000 + 1, <int64_t>60000))
    return parking_ms if ms < 0 or 0 <= parking_ms < ms else ms


cdef void _step(State *state, int32_t is_waking) noexcept nogil:
    """Decode the plan and turn its outputs into events. With is_waking, the front is woken for earlier events while a
    GPU computes."""
    cdef int64_t t_decode, t_wait, t_sample, t_end, sample_us
    cdef int32_t i, code
    cdef Slot *slot
    sample_step_drain(state)
    code = _set_adapters(state)
    if code != 0:
        faults_adapters(state, code)
        return
    if state.plan.media_slot != NULL:
        t_decode = now_us()
        code = media_step_run(state)
        if code != 0:
            faults_media(state, code)
            return
        state.slots.is_pending = 0
        state.stats.decode_us += now_us() - t_decode
        if state.plan.n_stalled:
            state.plan.prefill_us += <double>(now_us() - t_decode)  # decoding slots waited for the rows
    if state.plan.batch.n_tokens == 0:
        faults_passed(state)
        state.stats.n_steps += 1
        state.stats.t_last_step_us = now_us()
        return
    t_decode = now_us()
    sample_step_alert(state, t_decode)
    code = _decode(state)
    if code != 0:
        return
    state.slots.is_pending = 0
    t_wait = now_us()
    if is_waking:
        _wake(state)
    _apply(state)
    faults_passed(state)
    fillers_remove(&state.plan, &state.slots)
    draft_step_follow(state)
    replay_run(state)
    t_sample = sample_step_begin(state, t_decode, t_wait)
    batch_learn(&state.plan, t_sample - t_decode, t_sample - t_wait)
    sample_us = now_us() - t_sample
    for i in range(state.n_outputs):
        slot = sample_step_next(state, i, &sample_us)
        draft_step_take(state, slot, t_sample + sample_us)
    sample_step_end(state)
    t_end = now_us()
    state.stats.n_steps += 1
    state.stats.t_last_step_us = t_end
    state.stats.decode_us += t_wait - t_decode
    state.stats.wait_us += t_sample - t_wait
    state.stats.sample_us += sample_us
    state.stats.emit_us += t_end - t_sample - sample_us
    if state.tracing:
        emit_step(state, t_decode, t_wait, t_sample, t_sample + sample_us, t_end)


cdef void engine_run(State *state) noexcept nogil:
    """Run the engine thread until COMMAND_STOP or until its context is lost; every task gets its last event."""
    cdef int64_t now = now_us()
    cdef int32_t failure
    cdef uint64_t n_released
    cdef int32_t n_put_off, is_waking_later = 0, may_save
    while not state.is_lost:
        publish_turn(state, now)
        _gather(state)
        _take_commands(state)
        if state.stopping:
            break
        now = now_us()
        admission_expire(state, now)
        draft_step_take_deferred(state, now)
        n_put_off = shares_run(state)
        n_put_off += actions_run(state)
        suspension_run(state)
        n_put_off += admission_run(state, 1)
        prompt_ends_run(state)
        n_released = state.n_released
        context_make_room(state)
        checkpointing_run(state)
        turns_choose(&state.plan.turns, &state.slots, now)
        faults_isolate(state)
        draft_step_plan(state)
        batch_fill(&state.plan, &state.slots)
        state.plan.plan_us = now_us() - now
        state.stats.plan_us += state.plan.plan_us
        is_waking_later = is_waking_later and _is_launched_soon(&state.plan)
        if not is_waking_later:
            _wake(state)  # tasks that were admitted or dropped should not wait for the decode
        if state.plan.batch.n_tokens > 0 or state.plan.media_slot != NULL:
            _step(state, is_waking_later)
            may_save = parking_may_save(state, now_us() - now)
            is_waking_later = not may_save and n_put_off == 0 and _can_wake_later(state)
            if not is_waking_later:
                _wake(state)
            if may_save:
                parking_save_beside(state)
        elif state.n_released == n_released and n_put_off == 0:  # else something may wait for it
            now = now_us()
            if not parking_save_next(state, now):
                publish_rest(state, now)
                wake_wait(state.channel.command_fd, _timeout_ms(state, now))
        now = now_us()
    sample_step_drain(state)  # the rows may be freed once this thread has ended
    _take_commands(state)  # so that the last commands get their events too
    failure = FAILURE_ENGINE if state.is_lost else FAILURE_ABORTED
    _fail_all(state, failure)
    while state.queue.first != NULL:
        admission_drop(state, state.queue.first, failure)
    prompt_ends_free(state)
    actions_drop_all(state, RESULT_ENGINE if state.is_lost else RESULT_ABORTED)
    if not state.is_lost:
        parking_save_last(state)
    staging_free(&state.cache.staging)  # the context that it belongs to may be closed before the cache
    publish_rest(state, now_us())
    state.is_dirty = 1
    _wake(state)
