# Owns: the logits at the end of a prompt that several completions of one request share (`n` > 1). Runs on the engine
# thread.
#
# The first completion prefills the prompt. The others take its state over (prefix/copying.pyx) and sample their first
# token from the same row, so that nothing is computed twice. The row is kept while a completion of the request runs or
# waits, because others may still arrive.
from libc.stdint cimport int32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from llamad.engine.prefix.checkpointing cimport checkpointing_add
from llamad.engine.kv.slots cimport SLOT_DECODING, SLOT_PREFILLING, Slot, slot_is_recomputing
from llamad.engine.kv.task_queue cimport Task, queue_has_group
from llamad.engine.state.engine_state cimport PromptEnd, State


cdef PromptEnd *_find(const State *state, uint64_t group) noexcept nogil:
    cdef PromptEnd *end = state.prompt_ends
    while end != NULL and end.group != group:
        end = end.next
    return end


cdef int prompt_end_is_wanted(const State *state, const Slot *slot) noexcept nogil:
    """Return whether the slot is the first of several completions to prefill their prompt."""
    if slot.state != SLOT_PREFILLING or slot.task.command.group == 0 or slot_is_recomputing(slot):
        return 0
    return _find(state, slot.task.command.group) == NULL


cdef void _keep(State *state, const Slot *slot) noexcept nogil:
    """Keep the slot's row. If memory runs out there is none, and the others compute the prompt's last token again."""
    cdef size_t n = <size_t>state.n_vocab * sizeof(float)
    cdef PromptEnd *end = <PromptEnd *>calloc(1, sizeof(PromptEnd))
    if end != NULL:
        end.row = <float *>malloc(n)
    if end == NULL or end.row == NULL:
        free(end)
        return
    memcpy(end.row, state.arrival.rows + <size_t>slot.i_row * <size_t>state.n_vocab, n)
    end.group = slot.task.command.group
    end.next = state.prompt_ends
    state.prompt_ends = end


cdef void prompt_ends_keep(State *state) noexcept nogil:
    """Keep the rows that others need. Call after the rows have arrived and before sampling, which may change a row."""
    cdef const Slot *slot
    cdef int32_t i
    if state.arrival.rows == NULL:
        return
    for i in range(state.n_outputs):
        slot = &state.slots.items[state.outputs[i]]
        if slot.task != NULL and prompt_end_is_wanted(state, slot):
            _keep(state, slot)


cdef const float *prompt_end_row(const State *state, const Task *task) noexcept nogil:
    """Return the row from which the task's first token can be sampled, or NULL."""
    cdef const PromptEnd *end = _find(state, task.command.group) if task.command.group else NULL
    return end.row if end != NULL else NULL


cdef int _is_running(State *state, const PromptEnd *end) noexcept nogil:
    """Return whether a slot has a completion of the request. Kinds of memory that cannot go back to the end of the
    prompt get a checkpoint there, before the completion continues from it."""
    cdef Slot *slot
    cdef int32_t i, n = 0
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if slot.task == NULL or slot.task.command.group != end.group:
            continue
        n += 1
        if slot.state == SLOT_DECODING and slot.n_tokens == slot.task.command.n_prompt:
            checkpointing_add(state, slot)
    return n > 0


cdef void prompt_ends_run(State *state) noexcept nogil:
    """Drop rows that no completion can use any more. Call after waiting tasks were admitted."""
    cdef PromptEnd **link = &state.prompt_ends
    cdef PromptEnd *end
    while link[0] != NULL:
        end = link[0]
        if _is_running(state, end) or queue_has_group(&state.queue, end.group):
            link = &end.next
        else:
            link[0] = end.next
            free(end.row)
            free(end)


cdef void prompt_ends_free(State *state) noexcept nogil:
    cdef PromptEnd *end
    while state.prompt_ends != NULL:
        end = state.prompt_ends
        state.prompt_ends = end.next
        free(end.row)
        free(end)
