# Owns: how tasks leave the queue: to a slot, or because their deadline has passed. Runs on the engine thread, between
# two steps. prefix/sharing.pyx decides which part of the prompt the slot keeps or takes over.
from libc.stdint cimport int32_t, int64_t

from llamad.base.system cimport now_us
from llamad.engine.cache.eviction cimport slots_choose
from llamad.engine.costs.scheduler cimport STATES_US_MAX
from llamad.engine.events cimport emit_admitted, emit_failed, finish_failed
from llamad.engine.kv.cells cimport cells_fit_running, cells_spare, cells_wanted
from llamad.engine.kv.slots cimport SLOT_PREFILLING, Slot, slot_take
from llamad.engine.kv.task_queue cimport Task, queue_remove, queue_take, task_close
from llamad.engine.prefix.parking cimport parking_run, parking_stock
from llamad.engine.prefix.prompt_ends cimport prompt_end_row
from llamad.engine.prefix.restoring cimport restoring_next, restoring_oldest
from llamad.engine.prefix.sharing cimport (
    prefix_fork, prefix_has_room, prefix_is_awaited, prefix_is_given_up, prefix_prepare, prefix_shared_running,
    prefix_should_wait, prefix_time_is_up,
)
from llamad.engine.publish cimport publish_task
from llamad.engine.sample_step cimport sample_step_alone
from llamad.engine.state.engine_state cimport State
from llamad.engine.suspension cimport suspension_is_waiting
from llamad.protocol.messages cimport FAILURE_DEADLINE


cdef void admission_drop(State *state, Task *task, int32_t failure) noexcept nogil:
    """Fail a waiting task and remove it from the queue."""
    queue_remove(&state.queue, task)
    emit_failed(state, task.command.id, failure, 0)
    task_close(task)


cdef void admission_expire(State *state, int64_t now) noexcept nogil:
    """Fail all tasks, waiting or running, whose deadline has passed."""
    cdef Task *task = state.queue.first
    cdef Task *next
    cdef int32_t i
    while task != NULL:
        next = task.next
        if task.command.deadline_us and now >= task.command.deadline_us:
            admission_drop(state, task, FAILURE_DEADLINE)
        task = next
    for i in range(state.slots.n):
        task = state.slots.items[i].task
        if task != NULL and task.command.deadline_us and now >= task.command.deadline_us:
            finish_failed(state, &state.slots.items[i], FAILURE_DEADLINE, 0)


cdef int _can_admit(State *state, const Task *task) noexcept nogil:
    """Return whether there is room for the task. Slots with their own KV stream always have room. A unified cache needs
    room for the prompt and the first output tokens. Room for more output is not reserved: if the cache becomes full, a
    task is suspended (suspension.pyx)."""
    cdef int32_t n_output
    if state.slots.n_cells == 0 or cells_wanted(&state.slots) == 0:
        return 1
    n_output = cells_spare(&state.slots)
    if task.command.options.n_predict >= 0:
        n_output = min(n_output, task.command.options.n_predict)
    return cells_fit_running(
        &state.slots, task.command.n_prompt - prefix_shared_running(&state.slots, task) + n_output,
        task.command.n_prompt)


cdef int _waits_for_group(const State *state, const Task *task) noexcept nogil:
    """Return whether another task of its group is prefilling the prompt, which this one will take over."""
    cdef const Slot *slot
    cdef int32_t i
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if slot.state == SLOT_PREFILLING and slot.task.command.group == task.command.group:
            return task.command.group != 0
    return 0


cdef void _announce(State *state, Slot *slot) noexcept nogil:
    slot.is_announced = 1
    slot.t_admit_us = now_us()
    emit_admitted(state, slot)


cdef void admission_announce(State *state) noexcept nogil:
    """Emit the admitted events of tasks that were admitted silently, or that have got what the prompt cache had."""
    cdef Slot *slot
    cdef int32_t i
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if slot.state == SLOT_PREFILLING and not slot.is_announced and not slot.restored_entry:
            _announce(state, slot)


cdef void _admit(State *state, Slot *slot, Task *task, int is_announced) noexcept nogil:
    """Start the task in the slot. If the slot holds the whole prompt already, the first token is sampled at once."""
    prefix_prepare(state, slot, task)
    slot_take(&state.slots, slot, task)
    parking_run(state, slot)
    parking_stock(state, slot)
    slot.is_announced = 0
    if is_announced and not slot.restored_entry or slot.n_tokens == slot.n_prefill:
        _announce(state, slot)
    if slot.n_tokens == slot.n_prefill:
        sample_step_alone(state, slot, prompt_end_row(state, task))


cdef int _restore_parts(State *state) noexcept nogil:
    """Restore parts of prompts for the slots that wait for them, in the order of their tasks, for a limited time. Return
    whether any slot still waits."""
    cdef Slot *slot = restoring_oldest(state)
    cdef int64_t last_us = 0
    while slot != NULL and state.cache.turn_us + last_us <= STATES_US_MAX:
        last_us = -state.cache.turn_us
        publish_task(state, slot.task.command.id)
        restoring_next(state, slot)
        publish_task(state, 0)
        last_us += state.cache.turn_us
        slot = restoring_oldest(state)
    return slot != NULL


cdef int32_t admission_run(State *state, int is_announced) noexcept nogil:
    """Admit waiting tasks in their order. A task lets others pass while it is bound to a busy slot, or waits for its
    group or for a slot that is prefilling the same prefix; one without room does not. All tasks wait for suspended
    ones. Then restore parts of what admitted tasks get from the prompt cache. Return whether there is more to save or to
    restore."""
    cdef Task *task = state.queue.first if not suspension_is_waiting(&state.slots) else NULL
    cdef Task *next
    cdef Slot *slot
    cdef int32_t n_put_off = 0
    state.cache.turn_us = 0
    while task != NULL and not prefix_time_is_up(state):
        next = task.next
        publish_task(state, task.command.id)
        if _waits_for_group(state, task) or prefix_is_awaited(&state.slots, task):
            task = next
            continue
        slot = slots_choose(&state.slots, task)
        if slot != NULL:
            if not _can_admit(state, task):
                break
            if prefix_should_wait(state, task):
                task = next
                continue
            slot = prefix_fork(&state.slots, slot, task)
            if not prefix_is_given_up(state, slot, task) or not prefix_has_room(state, slot, task):
                n_put_off = 1
                break
            queue_take(&state.queue, task)
            _admit(state, slot, task, is_announced)
        elif task.command.options.id_slot < 0:
            break
        task = next
    publish_task(state, 0)
    if is_announced:
        n_put_off += _restore_parts(state)
        admission_announce(state)
    return n_put_off
