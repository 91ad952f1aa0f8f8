# How llama.cpp cuts a batch into graphs, for the fake.
from libc.stdint cimport int32_t

from llamad.base.table cimport llamad_batch

cdef int32_t fake_graphs(const llamad_batch *batch, int32_t *arrives) noexcept nogil
