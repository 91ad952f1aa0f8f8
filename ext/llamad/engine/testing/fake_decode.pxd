# The table's functions that decode and give logits; fake_decode.pyx explains them.
from libc.stdint cimport int32_t

from llamad.base.function_table cimport llamad_batch, llamad_rows
from llamad.engine.testing.fake_model cimport FakeModel

cdef int32_t chaos_answer(const FakeModel *model, int32_t token, int32_t pos) noexcept nogil
cdef int32_t fake_decode(void *ctx, const llamad_batch *batch) noexcept nogil
cdef int32_t fake_decode_rows(void *ctx, const llamad_rows *rows) noexcept nogil
cdef float *fake_logits(void *ctx, int32_t i_batch) noexcept nogil
cdef float *fake_rows(void *ctx) noexcept nogil
