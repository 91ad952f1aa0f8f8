# Owns: the log probabilities of a prompt's tokens, for tasks that ask for them (batch.pyx then requests logits for all
# of their tokens). Runs on the engine thread between decode and sampling; sampler threads work on the rows. Never
# changes a row, because the last one is still needed for sampling.
from libc.stdint cimport int32_t

from llamad.engine.state.engine_state cimport State
from llamad.engine.events cimport emit_prompt, finish_failed
from llamad.engine.scheduler.plan cimport PROMPT_OUTPUTS_MAX
from llamad.engine.sampler.logprobs cimport Probs, probs_of, probs_reserve_for
from llamad.engine.kv.slots cimport Slot, slot_shows_prompt
from llamad.protocol.messages cimport FAILURE_MEMORY, FAILURE_SAMPLER
from llamad.engine.threads.sampler_pool cimport sampler_pool_run

ctypedef struct Chunk:
    State *state
    Slot *slot
    int32_t i_prompt         # index of the chunk's first token
    float *rows[PROMPT_OUTPUTS_MAX]  # fetched on the engine thread, because llama.cpp may reorder them then


cdef void _take_one(void *arg, int32_t index, int32_t worker) noexcept nogil:
    """Compute the probability that a token's row gives to the next token."""
    cdef Chunk *chunk = <Chunk *>arg
    cdef State *state = chunk.state
    cdef Probs probs = chunk.slot.probs  # a copy: the rows are shared, but not the position in them
    probs.is_post = 0
    probs.n_tokens = index
    probs_of(&probs, chunk.rows[index], state.n_vocab,
             chunk.slot.task.prompt[chunk.i_prompt + index + 1], state.scratch + <size_t>worker * state.scratch_bytes)


cdef void _take_chunk(State *state, Slot *slot) noexcept nogil:
    """Handle a chunk, except the prompt's last token, which has no next one, and tokens that were sent before."""
    cdef Chunk chunk
    cdef int32_t n, i, i_batch = 0, n_sent
    chunk.state = state
    chunk.slot = slot
    chunk.i_prompt = slot.n_tokens - slot.n_planned
    while state.plan.seq_ids[i_batch] != slot.id:
        i_batch += 1
    n = min(slot.n_planned, slot.task.command.n_prompt - 1 - chunk.i_prompt)
    n_sent = max(0, min(n, slot.n_shown - chunk.i_prompt))
    chunk.i_prompt += n_sent
    i_batch += n_sent
    n -= n_sent
    if n == 0:
        return
    if probs_reserve_for(&slot.probs, n) < 0:
        finish_failed(state, slot, FAILURE_MEMORY, 0)
        return
    for i in range(n):
        chunk.rows[i] = state.table.logits(state.ctx, i_batch + i)
        if chunk.rows[i] == NULL:
            finish_failed(state, slot, FAILURE_SAMPLER, 0)
            return
    sampler_pool_run(state.sampler_pool, _take_one, &chunk, n)
    emit_prompt(state, slot, chunk.i_prompt + 1, n)
    slot.n_shown = chunk.i_prompt + n


cdef void take_prompt_probs(State *state) noexcept nogil:
    """Emit the probabilities for the batch that was just decoded. A task that fails here has left its slot."""
    cdef Slot *slot
    cdef int32_t i
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if slot.n_planned and slot_shows_prompt(slot):
            _take_chunk(state, slot)
