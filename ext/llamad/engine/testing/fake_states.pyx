# Owns: the states of the fake's sequences, in llama.cpp's own format. Runs on the engine thread. A restore takes cells
# like a decode, and fails without room.
#
# The head is followed by the sections of the memory: KV cache, KV cache of the window, recurrent state. A partial state
# omits the first one if there is another. A KV cache has one layer, with keys and values of one f32 each: the token and
# the adapters. The recurrent memory has one layer too; its rows hold all tokens that the state has seen as f16, and
# their adapters as f32. A state on the device is such a state too; what describes it is only the head and its number.
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from llamad.base.function_table cimport LLAMAD_STATE_ON_DEVICE, LLAMAD_STATE_PARTIAL
from llamad.base.system cimport load_int, load_time, sleep_us, store_int
from llamad.engine.testing.fake_cells cimport (
    FakeCell, FakeCells, FakeStream, cells_find, cells_insert, cells_is_masked, cells_rm, cells_span, cells_stream,
)
from llamad.engine.testing.fake_memory cimport memory_held, memory_is_bad, memory_order
from llamad.engine.testing.fake_model cimport FakeCopy, FakeModel, FakeSeq
from llamad.engine.testing.fake_owners cimport owners_has
from llamad.engine.testing.fake_recurrent cimport (
    FakeSeen, recurrent_pos, recurrent_restore, recurrent_seen, seen_append, seen_new,
)
from llamad.engine.testing.fake_split cimport FakeBatch

cdef enum:
    MAGIC = 0xaf143cd8
    F32 = 0
    F16 = 1
    PARTIAL_BYTES = 4096     # least size of a recurrent state: a page, so that limits in bytes have an effect
    DEVICE_HEAD = 12
    TOKEN_SHIFT = 3          # 0 ends the tokens of a recurrent state, and FAKE_ROW is -2

ctypedef struct Writer:
    uint8_t *data              # NULL: only count the bytes
    size_t n

ctypedef struct Reader:
    const uint8_t *data
    size_t n
    size_t at                  # beyond n after a read past the end


cdef void _put(Writer *out, const void *data, size_t n) noexcept nogil:
    if out.data != NULL:
        memcpy(out.data + out.n, data, n)
    out.n += n


cdef void _put_int(Writer *out, uint32_t value) noexcept nogil:
    _put(out, &value, 4)


cdef void _put_rows(Writer *out, uint32_t type, uint64_t n_bytes) noexcept nogil:
    """Write the head of a layer's rows."""
    _put_int(out, type)
    _put(out, &n_bytes, 8)


cdef uint32_t _take_int(Reader *data) noexcept nogil:
    cdef uint32_t value = 0
    data.at += 4
    if data.at <= data.n:
        memcpy(&value, data.data + data.at - 4, 4)
    return value


cdef const uint8_t *_take_rows(Reader *data, uint32_t type, uint64_t n_bytes, size_t n_rows) noexcept nogil:
    """Return the rows after their head, or NULL if type or size differ."""
    cdef uint64_t n_saved = 0
    cdef uint32_t saved_type = _take_int(data)
    data.at += 8 + n_bytes * n_rows
    if data.at > data.n:
        return NULL
    memcpy(&n_saved, data.data + data.at - 8 - n_bytes * n_rows, 8)
    return data.data + data.at - n_bytes * n_rows if saved_type == type and n_saved == n_bytes else NULL


# --- a KV cache -------------------------------------------------------------------------------------------------

cdef int _is_saved(FakeCells *cells, int32_t seq, const FakeCell *cell) noexcept nogil:
    """Return whether the sequence's last token sees its cell."""
    return owners_has(&cell.owners, seq) and not cells_is_masked(cells, cell.pos, cells_span(cells, seq).pos_max)


cdef void _put_cells(Writer *out, FakeCells *cells, int32_t seq, uint32_t n_streams) noexcept nogil:
    cdef FakeStream *stream = cells_stream(cells, seq)
    cdef uint32_t n = 0, s
    cdef int32_t i, k
    cdef float value
    for i in range(stream.n_touched):
        n += _is_saved(cells, seq, &stream.cells[i])
    _put_int(out, n_streams)
    for s in range(n_streams):
        if n == 0 or (n_streams > 1 and s != <uint32_t>seq):
            _put_int(out, 0)
            continue
        _put_int(out, n)
        for i in range(stream.n_touched):
            if _is_saved(cells, seq, &stream.cells[i]):
                _put_int(out, <uint32_t>stream.cells[i].pos)
                _put_int(out, 1)
                _put_int(out, <uint32_t>seq)
        _put_int(out, 0)
        _put_int(out, 1)
        for k in range(2):
            _put_rows(out, F32, 4)
            for i in range(stream.n_touched):
                if _is_saved(cells, seq, &stream.cells[i]):
                    value = <float>stream.cells[i].token if k == 0 else stream.cells[i].adapters
                    _put(out, &value, 4)


cdef int _insert(FakeCells *cells, int32_t seq, const uint8_t *positions, const uint8_t *tokens,
                 const uint8_t *adapters, int32_t n) noexcept nogil:
    """Make the sequence hold exactly these cells. Return 0 if there is no room; then it is empty."""
    cdef FakeBatch batch
    cdef float value = 0
    cdef int32_t i
    cdef int has_room
    batch.n = n
    batch.token = <int32_t *>malloc(3 * <size_t>n * sizeof(int32_t))
    batch.pos = batch.token + n
    batch.seq = batch.token + 2 * n
    batch.adapters = <float *>malloc(<size_t>n * sizeof(float))
    for i in range(n):
        memcpy(&batch.pos[i], positions + 12 * i, 4)
        memcpy(&value, tokens + 4 * i, 4)
        batch.token[i] = <int32_t>value
        memcpy(&batch.adapters[i], adapters + 4 * i, 4)
        batch.seq[i] = seq
    cells_rm(cells, seq, 0, INT32_MAX)
    has_room = cells_insert(cells, &batch)
    free(batch.token)
    free(batch.adapters)
    return has_room


cdef int _take_cells(FakeModel *model, Reader *data, FakeCells *cells, int32_t seq) noexcept nogil:
    """Read a section into a cache. Return 0 without room, or if it does not fit this cache, which is a bad call."""
    cdef uint32_t _, n, n_all = 0
    cdef const uint8_t *positions
    cdef const uint8_t *tokens
    cdef const uint8_t *adapters
    if _take_int(data) != <uint32_t>model.n_streams_told:
        model.bad_calls += 1
        return 0
    for _ in range(<uint32_t>model.n_streams_told):
        n = _take_int(data)
        if n == 0:
            continue
        positions = data.data + data.at
        data.at += 12 * <size_t>n
        n_all += n
        model.bad_calls += _take_int(data) != 0 or _take_int(data) != 1
        tokens = _take_rows(data, F32, 4, n)
        adapters = _take_rows(data, F32, 4, n)
        if tokens == NULL or adapters == NULL:
            model.bad_calls += 1
            cells_rm(cells, seq, 0, INT32_MAX)
            return 0
        if not _insert(cells, seq, positions, tokens, adapters, <int32_t>n):
            return 0
    model.bad_calls += n_all == 0  # such a state would leave the sequence unchanged
    return 1


# --- a recurrent state ------------------------------------------------------------------------------------------

cdef uint64_t _seen_bytes(const FakeModel *model) noexcept nogil:
    return 4 * <uint64_t>((model.n_ctx + 1) // 2)


cdef uint64_t _adapters_bytes(const FakeModel *model) noexcept nogil:
    cdef uint64_t n_rest = 8 + 20 + 24 + _seen_bytes(model)
    return max(4 * <uint64_t>model.n_ctx, PARTIAL_BYTES - n_rest if n_rest < PARTIAL_BYTES else 0)


cdef void _put_zeros(Writer *out, size_t n) noexcept nogil:
    if out.data != NULL:
        memset(out.data + out.n, 0, n)
    out.n += n


cdef void _put_recurrent(Writer *out, FakeModel *model, int32_t seq) noexcept nogil:
    cdef const FakeSeen *seen = recurrent_seen(&model.recurrent, seq)
    cdef int32_t i
    cdef uint16_t token
    _put_int(out, seen != NULL)
    if seen != NULL:
        model.bad_calls += seen.n > model.n_ctx
        _put_int(out, <uint32_t>recurrent_pos(&model.recurrent, seq))
        _put_int(out, 0)
    _put_int(out, 0)
    _put_int(out, 1)
    _put_rows(out, F16, _seen_bytes(model))
    if seen != NULL:
        for i in range(min(seen.n, model.n_ctx)):
            token = <uint16_t>(seen.tokens[i] + TOKEN_SHIFT)
            _put(out, &token, 2)
        _put_zeros(out, _seen_bytes(model) - 2 * <size_t>min(seen.n, model.n_ctx))
    _put_rows(out, F32, _adapters_bytes(model))
    if seen != NULL:
        _put(out, seen.adapters, 4 * <size_t>min(seen.n, model.n_ctx))
        _put_zeros(out, _adapters_bytes(model) - 4 * <size_t>min(seen.n, model.n_ctx))


cdef int _take_recurrent(FakeModel *model, Reader *data, int32_t seq) noexcept nogil:
    cdef uint32_t n_states = _take_int(data), is_known = 1
    cdef int32_t pos = -1, i
    cdef uint16_t token = 0
    cdef float value = 0
    cdef FakeSeen *seen = NULL
    cdef const uint8_t *tokens
    cdef const uint8_t *adapters
    if n_states:
        pos = <int32_t>_take_int(data)
        is_known &= _take_int(data) == 0
    is_known &= n_states <= 1 and _take_int(data) == 0 and _take_int(data) == 1
    tokens = _take_rows(data, F16, _seen_bytes(model), n_states)
    adapters = _take_rows(data, F32, _adapters_bytes(model), n_states)
    if not is_known or tokens == NULL or adapters == NULL:
        model.bad_calls += 1
        return 0
    if n_states:
        seen = seen_new(model.n_ctx)
        for i in range(model.n_ctx):
            memcpy(&token, tokens + 2 * i, 2)
            memcpy(&value, adapters + 4 * i, 4)
            if token == 0:
                break
            seen_append(seen, <int32_t>token - TOKEN_SHIFT, value)
    recurrent_restore(&model.recurrent, seq, pos, seen)
    return 1


# --- all of them ------------------------------------------------------------------------------------------------

cdef int _has_base(const FakeModel *model, int32_t partial) noexcept nogil:
    """Return whether the state contains the first KV cache."""
    if model.base.n_streams == 0:
        return 0
    return not partial or (model.window.n_streams == 0 and model.recurrent.n_states == 0)


cdef void _write(Writer *out, FakeModel *model, int32_t seq, int32_t partial) noexcept nogil:
    _put_int(out, MAGIC)
    _put_int(out, <uint32_t>seq)
    if _has_base(model, partial):
        _put_cells(out, &model.base, seq, <uint32_t>model.n_streams_told)
    if model.window.n_streams:
        _put_cells(out, &model.window, seq, <uint32_t>model.n_streams_told)
    if model.recurrent.n_states:
        _put_recurrent(out, model, seq)


cdef size_t _size(FakeModel *model, int32_t seq, int32_t partial) noexcept nogil:
    cdef Writer out = Writer(NULL, 0)
    _write(&out, model, seq, partial)
    return out.n


cdef size_t fake_state_size(void *ctx, int32_t seq_id, int32_t flags) noexcept nogil:
    if memory_is_bad(<FakeModel *>ctx, seq_id):
        return 0
    return DEVICE_HEAD if flags & LLAMAD_STATE_ON_DEVICE else _size(
        <FakeModel *>ctx, seq_id, flags & LLAMAD_STATE_PARTIAL)


cdef size_t fake_state_get(void *ctx, int32_t seq_id, uint8_t *data, size_t n, int32_t flags) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    cdef Writer out = Writer(data, 0)
    if memory_is_bad(model, seq_id) or n < fake_state_size(ctx, seq_id, flags):
        return 0
    model.bad_calls += model.seqs[seq_id].is_written_later
    if model.state_us:
        sleep_us(model.state_us)
    if flags & LLAMAD_STATE_ON_DEVICE:
        _copy(&out, model, seq_id)
    else:
        _write(&out, model, seq_id, flags & LLAMAD_STATE_PARTIAL)
    return out.n


# --- on the device ----------------------------------------------------------------------------------------------

cdef int64_t fake_copies_bytes(const FakeModel *model) noexcept nogil:
    cdef int64_t n = 0
    cdef int32_t i
    for i in range(model.n_seqs):
        n += <int64_t>model.copies[i].n
    return n


cdef int64_t fake_device_free(void *ctx) noexcept nogil:
    return load_time(&(<FakeModel *>ctx).device_bytes) - fake_copies_bytes(<FakeModel *>ctx)


cdef void fake_copies_clear(FakeModel *model) noexcept nogil:
    cdef int32_t i
    for i in range(model.n_seqs):
        free(model.copies[i].data)
        model.copies[i].data = NULL
        model.copies[i].n = 0


cdef void _copy(Writer *out, FakeModel *model, int32_t seq) noexcept nogil:
    """Replace the sequence's copy. An empty sequence would leave the old one. Without memory llama.cpp would abort."""
    cdef FakeCopy *copy = &model.copies[seq]
    cdef Writer state = Writer(NULL, 0)
    model.bad_calls += memory_held(model, seq) == 0
    free(copy.data)
    copy.n = 0
    model.bad_calls += <int64_t>_size(model, seq, 0) > fake_device_free(model)
    copy.n = _size(model, seq, 0)
    copy.data = state.data = <uint8_t *>malloc(copy.n)
    _write(&state, model, seq, 0)
    model.last_copy += 1
    copy.number = model.last_copy
    _put_int(out, MAGIC)
    _put_int(out, <uint32_t>seq)
    _put_int(out, copy.number)


cdef int _open_copy(FakeModel *model, Reader *source) noexcept nogil:
    """Read the state on the device instead. Return 0 if there is no such state, which would be fatal."""
    cdef uint32_t seq
    cdef FakeCopy *copy
    model.bad_calls += source.n != DEVICE_HEAD or _take_int(source) != <uint32_t>MAGIC
    seq = _take_int(source)
    copy = &model.copies[min(seq, <uint32_t>model.n_seqs - 1)]
    if copy.data == NULL or copy.number != _take_int(source):
        model.bad_calls += 1
        return 0
    source[0] = Reader(copy.data, copy.n, 0)
    return 1


# --- restoring --------------------------------------------------------------------------------------------------

cdef int _belongs(FakeModel *model, int32_t seq) noexcept nogil:
    """Return whether what a partial state restored matches the tokens that the sequence holds. llama.cpp would accept a
    state of other tokens, and compute wrong results."""
    cdef FakeStream *stream = cells_stream(&model.window, seq)
    cdef const FakeSeen *seen = recurrent_seen(&model.recurrent, seq)
    cdef FakeCell *cell
    cdef FakeCell **cells
    cdef int32_t i
    cdef int is_same = 1
    if model.base.n_streams == 0:
        return 1
    for i in range(stream.n_touched):
        if owners_has(&stream.cells[i].owners, seq):
            cell = cells_find(&model.base, seq, stream.cells[i].pos)
            is_same &= cell != NULL and cell.token == stream.cells[i].token
    if seen != NULL:
        is_same &= seen.n <= memory_held(model, seq)
        cells = memory_order(model, seq)
        for i in range(seen.n if is_same else 0):
            is_same &= cells[i].token == seen.tokens[i]
        free(cells)
    return is_same


cdef size_t fake_state_set(void *ctx, int32_t seq_id, const uint8_t *data, size_t n, int32_t flags) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    cdef Reader source = Reader(data, n, 0)
    cdef FakeSeq *seq = &model.seqs[seq_id]
    cdef int32_t partial = flags & LLAMAD_STATE_PARTIAL
    if memory_is_bad(model, seq_id) or load_int(&model.fail_state):
        store_int(&model.fail_state, 0)
        return 0
    model.bad_calls += seq.is_written_later or seq.is_read_later
    if model.state_us:
        sleep_us(model.state_us)
    if flags & LLAMAD_STATE_ON_DEVICE and not _open_copy(model, &source):
        return 0
    model.bad_calls += _take_int(&source) != <uint32_t>MAGIC
    _take_int(&source)
    if not partial:
        seq.n_outputs = seq.n_told = 0
    if _has_base(model, partial) and not _take_cells(model, &source, &model.base, seq_id):
        return 0
    if model.window.n_streams and not _take_cells(model, &source, &model.window, seq_id):
        return 0
    if model.recurrent.n_states and not _take_recurrent(model, &source, seq_id):
        return 0
    model.bad_calls += source.at != source.n
    if partial and not _belongs(model, seq_id):
        model.bad_calls += 1
    return n
