# Owns: the decode of embedding rows. llama.cpp does not mix them with tokens, so they need a separate decode, of one
# slot, before the step's batch. Runs on the engine thread. It does not know what the rows mean; they are in a blob that
# the front has lent (row_ids.pxd says how a prompt refers to them).
from libc.stdint cimport int32_t

from llamad.base.function_table cimport llamad_rows
from llamad.engine.kv.slots cimport Slot
from llamad.engine.kv.task_queue cimport task_run
from llamad.engine.state.engine_state cimport State
from llamad.protocol.blobs cimport blob_find, llamad_blob
from llamad.protocol.messages cimport RowRun
from llamad.protocol.row_ids cimport ROW_NON_CAUSAL, run_positions


cdef void _apply(Slot *slot, const RowRun *run, int32_t n) noexcept nogil:
    """Update the slot after n rows were decoded. The last row of a grid takes all of its positions."""
    cdef const int32_t *ids = slot.prefill + run.first
    cdef int32_t i, is_grid = run.grid_at >= 0  # its ids show that only if it takes fewer positions than rows
    for i in range(slot.n_tokens, slot.n_tokens + n):
        slot.tokens[i] = slot.prefill[i]
    slot.n_tokens += n
    slot.n_partial += n
    if not is_grid:
        slot.n_pos += n
    if slot.n_partial == run.n_rows:
        slot.n_partial = 0
        if is_grid:
            slot.n_pos += run_positions(ids, run.n_rows)


cdef int32_t media_step_run(State *state) noexcept nogil:
    """Decode the planned rows of a slot. Return 0, or llama.cpp's code."""
    cdef Slot *slot = state.plan.media_slot
    cdef const RowRun *run = task_run(slot.task, slot.n_tokens)
    cdef const llamad_blob *blob = blob_find(run.blob) if run != NULL else NULL
    cdef llamad_rows rows
    cdef int32_t code, i_first
    if blob == NULL:
        return -1  # cannot happen, because the front keeps the blobs that it has lent
    i_first = slot.n_tokens - run.first
    rows.data = <const float *>(blob.data + run.rows_at) + <size_t>i_first * <size_t>state.n_row
    rows.grid = NULL if run.grid_at < 0 else <const int32_t *>(blob.data + run.grid_at) + i_first
    rows.stride = run.n_rows
    rows.n = state.plan.n_media
    rows.pos = slot.n_pos
    rows.seq = slot.id
    rows.output = state.plan.has_device  # see batch.pyx, _add_output
    rows.is_non_causal = slot.prefill[run.first] & ROW_NON_CAUSAL
    code = state.table.decode_rows(state.ctx, &rows)
    if code == 0:
        _apply(slot, run, rows.n)
    return code
