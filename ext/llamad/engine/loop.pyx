# Owns: the engine thread's turn. One turn is a step: take commands, admit, plan, decode, sample, emit, wake.
# Never creates a Python object, never takes the GIL, never waits for the event loop except when the event ring
# is full or the first of several requests is there. How tokens are picked is in sample_step.pyx, what they become in events.pyx.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from llamad.engine.slot_actions cimport actions_add, actions_drop, actions_drop_all, actions_run
from llamad.engine.state cimport State
from llamad.engine.sample_step cimport draw_alert, draw_begin, draw_end, draw_next, draw_settle
from llamad.engine.events cimport (
    emit_admitted, emit_failed, emit_step, emit_wake, finish_done, finish_failed, take_deferred, take_token,
)
from llamad.engine.scheduler.fillers cimport fillers_remove
from llamad.engine.threads.logits_arrival cimport landing_forget
from llamad.engine.scheduler.padding cimport pads_remove
from llamad.engine.scheduler.plan cimport plan_learn, plan_make, plan_part
from llamad.protocol.ring cimport ring_peek, ring_release
from llamad.engine.admission cimport share_evict_idle, share_hold, share_is_held, share_is_spent, share_prepare
from llamad.engine.kv.slots cimport (
    SLOT_IDLE, SLOT_READING, SLOT_WRITING, Slot, slot_discard, slot_regroup, slot_shift, slot_take, slots_cells_used,
    slots_choose, slots_forget,
)
from llamad.base.system cimport load_int, now_us, relax, sleep_us, store_int, wake_wait
from llamad.base.table cimport llamad_batch
from llamad.engine.kv.task_queue cimport Task, queue_add, queue_find, queue_remove, task_close, task_open
from llamad.protocol.messages cimport (
    COMMAND_ABORT, COMMAND_ACTION, COMMAND_PAUSE, COMMAND_RESUME, COMMAND_STOP, COMMAND_TASK, FAILURE_ABORTED,
    FAILURE_DEADLINE, FAILURE_DECODE, FAILURE_ENGINE, FAILURE_MEMORY, STOP_LIMIT, TASK_CONTEXT_SHIFT, ActionCommand,
    TaskCommand, TaskRef,
)

cdef enum:
    REBUILD_PAUSE_US = 1000000
    GATHER_US = 1000         # tasks that come one after the other are waited for so long without sleeping
    GATHER_MS = 1000


# --- commands -------------------------------------------------------------------------------------------------

cdef Slot *_slot_of(State *state, uint64_t id) noexcept nogil:
    cdef int32_t i
    for i in range(state.slots.n):
        if state.slots.items[i].task != NULL and state.slots.items[i].task.command.id == id:
            return &state.slots.items[i]
    return NULL


cdef void _drop_waiting(State *state, Task *task, int32_t failure) noexcept nogil:
    queue_remove(&state.queue, task)
    emit_failed(state, task.command.id, failure, 0)
    task_close(task)


cdef void _on_task(State *state, const TaskCommand *command) noexcept nogil:
    cdef Task *task = task_open(command)
    if task == NULL:
        emit_failed(state, command.id, FAILURE_MEMORY, 0)
    else:
        queue_add(&state.queue, task)


cdef void _on_abort(State *state, uint64_t id) noexcept nogil:
    # A task that has ended by itself meanwhile is in neither place; its last event is on the way.
    cdef Slot *slot = _slot_of(state, id)
    cdef Task *task
    if slot != NULL:
        finish_failed(state, slot, FAILURE_ABORTED, 0)
        return
    task = queue_find(&state.queue, id)
    if task != NULL:
        _drop_waiting(state, task, FAILURE_ABORTED)
    else:
        actions_drop(state, id)


cdef void _on_pause(State *state, uint64_t id, int32_t is_paused) noexcept nogil:
    cdef Slot *slot = _slot_of(state, id)
    cdef Task *task = slot.task if slot != NULL else queue_find(&state.queue, id)
    if task != NULL:
        task.is_paused = is_paused


cdef void _take_commands(State *state) noexcept nogil:
    cdef uint32_t kind = 0
    cdef void *payload = ring_peek(&state.channel.commands, &kind)
    while payload != NULL:
        if kind == COMMAND_TASK:
            _on_task(state, <const TaskCommand *>payload)
        elif kind == COMMAND_ABORT:
            _on_abort(state, (<TaskRef *>payload).id)
        elif kind == COMMAND_PAUSE or kind == COMMAND_RESUME:
            _on_pause(state, (<TaskRef *>payload).id, kind == COMMAND_PAUSE)
        elif kind == COMMAND_ACTION:
            actions_add(state, <const ActionCommand *>payload)
        elif kind == COMMAND_STOP:
            state.stopping = 1
        ring_release(&state.channel.commands)
        payload = ring_peek(&state.channel.commands, &kind)


# --- admission ------------------------------------------------------------------------------------------------

cdef void _expire(State *state, int64_t now) noexcept nogil:
    cdef Task *task = state.queue.first
    cdef Task *next
    cdef int32_t i
    while task != NULL:
        next = task.next
        if task.command.deadline_us and now >= task.command.deadline_us:
            _drop_waiting(state, task, FAILURE_DEADLINE)
        task = next
    for i in range(state.slots.n):
        task = state.slots.items[i].task
        if task != NULL and task.command.deadline_us and now >= task.command.deadline_us:
            finish_failed(state, &state.slots.items[i], FAILURE_DEADLINE, 0)


cdef int32_t _need(const State *state, const Task *task) noexcept nogil:
    """Cells a task may come to use, where slots share one cache."""
    cdef int32_t n = task.command.n_predict if task.command.n_predict >= 0 else state.slots.n_cells // state.slots.n
    return <int32_t>min(<int64_t>state.slots.n_ctx, <int64_t>task.command.n_prompt + n)


cdef int _can_admit(State *state, const Task *task) noexcept nogil:
    """Slots with a stream of their own always have room; in a shared cache what runs has reserved its part."""
    cdef int32_t i, n
    if state.slots.n_cells == 0:
        return 1
    n = _need(state, task)
    for i in range(state.slots.n):
        if state.slots.items[i].task != NULL:
            n += max(_need(state, state.slots.items[i].task), state.slots.items[i].n_tokens)
    return n <= state.slots.n_cells


cdef int _is_held(const State *state, const Task *task) noexcept nogil:
    """Another task of its group is reading the prompt: this one takes it over when that is done."""
    cdef const Slot *slot
    cdef int32_t i
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if slot.state == SLOT_READING and slot.task.command.group == task.command.group:
            return task.command.group != 0
    return 0


cdef void _tell_admitted(State *state, Slot *slot) noexcept nogil:
    slot.is_told = 1
    slot.t_admit_us = now_us()
    emit_admitted(state, slot)


cdef void _admit(State *state, int is_told) noexcept nogil:
    """Waiting tasks in their order; one bound to a busy slot or held by its group or by a reader of the same beginning
    lets others pass, one without room does not."""
    cdef Task *task = state.queue.first
    cdef Task *next
    cdef Slot *slot
    state.cache.turn_us = 0
    while task != NULL and not share_is_spent(state):
        next = task.next
        if _is_held(state, task) or share_is_held(&state.slots, task):
            task = next
            continue
        slot = slots_choose(&state.slots, task)
        if slot != NULL:
            if not _can_admit(state, task):
                break
            if share_hold(state, task):
                task = next
                continue
            queue_remove(&state.queue, task)
            share_prepare(state, slot, task)
            slot_take(&state.slots, slot, task)
            slot.is_told = 0
            if is_told:
                _tell_admitted(state, slot)
        elif task.command.id_slot < 0:
            break
        task = next


cdef void _gather(State *state) noexcept nogil:
    """Tasks come one after the other (wakeup.py): each is admitted while the loop reads the next, and told so when the
    last is there, since until then they wait. A loop that something else keeps is waited for asleep."""
    cdef int64_t t_end
    cdef int32_t i
    if not load_int(&state.channel.is_gathering):
        return
    t_end = now_us() + GATHER_US
    while load_int(&state.channel.is_gathering):
        _take_commands(state)
        if state.stopping:
            return
        if state.actions == NULL:  # else those come first (actions_run)
            _admit(state, 0)
        if now_us() < t_end:
            relax()
        else:
            wake_wait(state.channel.command_fd, GATHER_MS)
    for i in range(state.slots.n):
        if state.slots.items[i].state == SLOT_READING and not state.slots.items[i].is_told:
            _tell_admitted(state, &state.slots.items[i])


# --- room in the context --------------------------------------------------------------------------------------

cdef void _make_room(State *state) noexcept nogil:
    """Before the next tokens: group positions, and shift a writer's full context or end its task there."""
    cdef Slot *slot
    cdef int32_t i, n_keep, n_discard
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if load_int(&slot.deferral):
            continue  # its token comes first
        if slot.state != SLOT_IDLE:
            slot_regroup(&state.slots, slot)
        if slot.state != SLOT_WRITING or slot.n_tokens + 1 < state.slots.n_ctx:
            continue
        n_keep = min(slot.task.command.n_keep, state.slots.n_ctx)
        # n_keep does not count BOS, which is kept as well.
        n_keep = slot.task.command.n_prompt if n_keep < 0 else n_keep + state.add_bos
        n_keep = max(0, min(n_keep, state.slots.n_ctx - 4, slot.n_tokens - 2))
        n_discard = slot_discard(&state.slots, slot, n_keep) if slot.task.command.flags & TASK_CONTEXT_SHIFT else 0
        if n_discard > 0 and slot_shift(&state.slots, slot, n_keep, n_discard) == 0:
            continue
        if slot.n_tokens >= state.slots.n_ctx:
            slot.truncated = 1
            finish_done(state, slot, STOP_LIMIT, -1)


cdef int32_t _demand(const State *state) noexcept nogil:
    """Cells the coming step wants."""
    cdef const Slot *slot
    cdef int32_t i, n_writing = 0, n_reading = 0
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if slot.state == SLOT_WRITING:
            n_writing += 1
        elif slot.state == SLOT_READING:
            n_reading += slot.task.command.n_prompt - slot.n_tokens
    return n_writing + min(n_reading, state.plan.batch_max)


cdef Slot *_youngest_writer(State *state) noexcept nogil:
    cdef Slot *slot
    cdef Slot *youngest = NULL
    cdef int32_t i
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if slot.state == SLOT_WRITING and (youngest == NULL or slot.task.command.id > youngest.task.command.id):
            youngest = slot
    return youngest


cdef void _make_shared_room(State *state) noexcept nogil:
    """In a shared cache: idle prefixes go first; when running tasks outgrew their share, the youngest ends."""
    cdef Slot *youngest
    while state.slots.n_cells and slots_cells_used(&state.slots) + _demand(state) > state.slots.n_cells:
        if share_evict_idle(state, NULL) > 0:
            continue
        youngest = _youngest_writer(state)
        if youngest == NULL:
            return
        youngest.truncated = 1
        finish_done(state, youngest, STOP_LIMIT, -1)


# --- decode ---------------------------------------------------------------------------------------------------

cdef void _fail_all(State *state, int32_t failure, int32_t code) noexcept nogil:
    cdef int32_t i
    for i in range(state.slots.n):
        if state.slots.items[i].task != NULL:
            finish_failed(state, &state.slots.items[i], failure, code)


cdef void _rebuild(State *state, int32_t code) noexcept nogil:
    """A decode failed: its requests fail, and a new context takes the old one's place."""
    state.stats.n_decode_failures += 1
    _fail_all(state, FAILURE_DECODE, code)
    while state.table.rebuild(state.ctx) != 0:
        state.stats.is_failed = 1
        _take_commands(state)
        while state.queue.first != NULL:
            _drop_waiting(state, state.queue.first, FAILURE_ENGINE)
        _wake(state)
        if state.stopping:
            return
        sleep_us(REBUILD_PAUSE_US)
    state.stats.is_failed = 0
    slots_forget(&state.slots)
    landing_forget(&state.landing)
    state.slots.is_pending = 0


cdef int32_t _decode(State *state) noexcept nogil:
    """0, or llama.cpp's code."""
    cdef llamad_batch part
    cdef int32_t code = 0
    if state.plan.n_apart:
        part = plan_part(&state.plan, 0, state.plan.n_apart)
        code = state.table.decode(state.ctx, &part)
        if code == 0:
            pads_remove(&state.plan, &state.slots)
    if code == 0 and state.plan.n_apart < state.plan.batch.n_tokens:
        part = plan_part(&state.plan, state.plan.n_apart, state.plan.batch.n_tokens)
        code = state.table.decode(state.ctx, &part)
        if code == 0 and not state.plan.is_apart:
            pads_remove(&state.plan, &state.slots)
    return code


cdef void _apply(State *state) noexcept nogil:
    """The batch is in the cache now: the slots hold its tokens."""
    cdef Slot *slot
    cdef int32_t i, k
    state.n_outputs = 0
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if slot.n_planned == 0:
            continue
        if slot.state == SLOT_WRITING:
            slot.tokens[slot.n_tokens] = slot.next_token
        else:
            for k in range(slot.n_tokens, slot.n_tokens + slot.n_planned):
                slot.tokens[k] = slot.task.prompt[k]
        slot.n_tokens += slot.n_planned
        slot.n_pos += slot.n_planned
        if slot.i_output >= 0 and not slot.is_filler:
            state.outputs[state.n_outputs] = i
            state.n_outputs += 1


# --- the loop -------------------------------------------------------------------------------------------------

cdef void _wake(State *state) noexcept nogil:
    state.stats.n_waiting = state.queue.n
    if state.is_dirty:
        state.is_dirty = 0
        emit_wake(state)
    else:
        store_int(&state.channel.is_emitting, 0)


cdef int _timeout_ms(const State *state, int64_t now) noexcept nogil:
    """Until the next deadline, for a loop that has nothing to decode."""
    cdef int64_t first = 0
    cdef const Task *task = state.queue.first
    cdef int32_t i
    while task != NULL:
        if task.command.deadline_us and (first == 0 or task.command.deadline_us < first):
            first = task.command.deadline_us
        task = task.next
    for i in range(state.slots.n):
        task = state.slots.items[i].task
        if task != NULL and task.command.deadline_us and (first == 0 or task.command.deadline_us < first):
            first = task.command.deadline_us
    return -1 if first == 0 else <int>max(<int64_t>0, min((first - now) // 1000 + 1, <int64_t>60000))


cdef void _step(State *state) noexcept nogil:
    """Decodes the plan and turns its outputs into events."""
    cdef int64_t t_decode, t_wait, t_sample, t_end, sample_us
    cdef int32_t i, code
    cdef Slot *slot
    draw_settle(state)
    t_decode = now_us()
    draw_alert(state, t_decode)
    code = _decode(state)
    if code != 0:
        _rebuild(state, code)
        return
    state.slots.is_pending = 0
    t_wait = now_us()
    _apply(state)
    fillers_remove(&state.plan, &state.slots)
    t_sample = draw_begin(state, t_decode, t_wait)
    plan_learn(&state.plan, t_sample - t_decode, t_sample - t_wait)
    sample_us = now_us() - t_sample
    for i in range(state.n_outputs):
        slot = draw_next(state, i, &sample_us)
        if slot != NULL:
            take_token(state, slot, t_sample + sample_us)
    draw_end(state)
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
    """The engine thread's life. Returns after COMMAND_STOP, with every task answered."""
    cdef int64_t now
    cdef uint64_t n_released
    cdef int32_t n_put_off
    while True:
        _gather(state)
        _take_commands(state)
        if state.stopping:
            break
        now = now_us()
        _expire(state, now)
        take_deferred(state, now)
        n_put_off = actions_run(state)
        _admit(state, 1)
        n_released = state.n_released
        _make_room(state)
        _make_shared_room(state)
        plan_make(&state.plan, &state.slots)
        state.plan.plan_us = now_us() - now
        state.stats.plan_us += state.plan.plan_us
        _wake(state)  # who was admitted or dropped should not have to wait for the decode
        if state.plan.batch.n_tokens > 0:
            _step(state)
            _wake(state)
        elif state.n_released == n_released and n_put_off == 0:  # else somebody may be waiting for a slot or a turn
            wake_wait(state.channel.command_fd, _timeout_ms(state, now_us()))
    draw_settle(state)  # whoever ends this thread may free the rows
    _fail_all(state, FAILURE_ABORTED, 0)
    while state.queue.first != NULL:
        _drop_waiting(state, state.queue.first, FAILURE_ABORTED)
    actions_drop_all(state)
    state.is_dirty = 1
    _wake(state)
