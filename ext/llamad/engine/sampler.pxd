# The interface behind which a task's next token is picked. Today llama.cpp's own chain, through the table.
from libc.stdint cimport int32_t

from llamad.engine.table cimport llamad_table
from llamad.engine.tasks cimport Task

cdef void *sampler_open(const llamad_table *table, const void *vocab, const Task *task) noexcept nogil
cdef int32_t sampler_pick(const llamad_table *table, void *sampler, const float *logits, int32_t n_vocab,
                          void *scratch) noexcept nogil
cdef void sampler_close(const llamad_table *table, void *sampler) noexcept nogil
cdef size_t sampler_scratch_bytes(int32_t n_vocab) noexcept nogil
