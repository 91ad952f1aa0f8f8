# Owns: a task's sampler from its first to its last token. Opened on the engine thread, picks on sampler threads
# (one task on one thread at a time). Must not touch slots or events.
from libc.stdint cimport int32_t

from llamad.engine.table cimport llamad_sampling, llamad_table
from llamad.engine.tasks cimport Task


cdef int32_t _history_wanted(const llamad_sampling *s) noexcept nogil:
    """How many of the prompt's last tokens can matter: penalties and DRY look back no further."""
    cdef int32_t n = 0
    if s.mirostat:
        return 0
    if s.repeat_penalty != 1 or s.presence_penalty != 0 or s.frequency_penalty != 0:
        n = s.repeat_last_n
    if s.dry_multiplier != 0 and s.dry_penalty_last_n > n:
        n = s.dry_penalty_last_n
    return n


cdef void *sampler_open(const llamad_table *table, const void *vocab, const Task *task) noexcept nogil:
    """A sampler that has seen the prompt, or NULL when llama.cpp refuses."""
    cdef int32_t n_prompt = task.command.n_prompt, i
    cdef int32_t n = min(n_prompt, _history_wanted(&task.command.sampling))
    cdef void *sampler = table.sampler_open(vocab, &task.command.sampling, task.bias, task.command.n_bias,
                                            task.breakers, task.command.n_breakers)
    if sampler != NULL:
        for i in range(n_prompt - n, n_prompt):
            table.sampler_accept(sampler, task.prompt[i])
    return sampler


cdef int32_t sampler_pick(const llamad_table *table, void *sampler, const float *logits, int32_t n_vocab,
                          void *scratch) noexcept nogil:
    """The next token, remembered as part of the history; negative on an error."""
    cdef int32_t token = table.sampler_pick(sampler, logits, n_vocab, scratch)
    if token >= 0:
        table.sampler_accept(sampler, token)
    return token


cdef void sampler_close(const llamad_table *table, void *sampler) noexcept nogil:
    if sampler != NULL:
        table.sampler_close(sampler)


cdef size_t sampler_scratch_bytes(int32_t n_vocab) noexcept nogil:
    return <size_t>n_vocab * 12
