# Owns: the fake's KV memory: sequences of cells, copies and moves that its next decode does, and their states. The
# engine thread's. It is as strict as llama.cpp is fatal: what would abort there is counted in bad_calls here.
from libc.stdint cimport INT32_MAX, int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from llamad.base.system cimport load_int, store_int
from llamad.engine.testing.fake_model cimport FAKE_ROW, FAKE_SEQS_MAX, FakeCell, FakeModel, FakeSeq

cdef enum:
    PARTIAL_BYTES = 4096     # as large as a page, so that a bound in bytes shows


cdef int32_t fake_next_pos(const FakeSeq *seq) noexcept nogil:
    return seq.cells[seq.n_held - 1].pos + 1 if seq.n_held else 0


cdef int fake_ends_with_row(const FakeSeq *seq) noexcept nogil:
    return seq.n_held > 0 and seq.cells[seq.n_held - 1].token == FAKE_ROW


cdef void _let_go(FakeCell *cell) noexcept nogil:
    cell.n_seqs -= 1
    if cell.n_seqs == 0:
        free(cell)


cdef void fake_hold(FakeModel *model, FakeSeq *seq, FakeCell *cell) noexcept nogil:
    if seq.cells == NULL:
        seq.cells = <FakeCell **>malloc(<size_t>(model.n_ctx + 1) * sizeof(void *))
    if seq.n_held > model.n_ctx:
        model.bad_calls += 1
        return
    cell.n_seqs += 1
    seq.cells[seq.n_held] = cell
    seq.n_held += 1


cdef FakeCell *fake_new_cell(int32_t pos, int32_t token, float adapters) noexcept nogil:
    cdef FakeCell *cell = <FakeCell *>calloc(1, sizeof(FakeCell))
    cell.pos = pos
    cell.token = token
    cell.adapters = adapters
    return cell


cdef void fake_empty(FakeSeq *seq) noexcept nogil:
    cdef int32_t i
    for i in range(seq.n_held):
        _let_go(seq.cells[i])
    seq.n_held = seq.n_outputs = seq.n_told = seq.n_rewound = 0


cdef int _is_bad(FakeModel *model, int32_t seq) noexcept nogil:
    if 0 <= seq < FAKE_SEQS_MAX:
        return 0
    model.bad_calls += 1
    return 1


cdef int _is_behind_output(const FakeSeq *seq, int32_t p0) noexcept nogil:
    """Whether what is cut off begins right behind a token with an output, and has none itself: pads."""
    return 0 < seq.n_told < seq.n_held and seq.cells[seq.n_told].pos == p0


cdef int32_t fake_seq_rm(void *ctx, int32_t seq_id, int32_t p0, int32_t p1) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    cdef FakeSeq *seq = &model.seqs[seq_id]
    cdef int32_t i, n = 0
    if _is_bad(model, seq_id):
        return 0
    p1 = INT32_MAX if p1 < 0 else p1
    if not model.can_cut and 0 < p0 < fake_next_pos(seq) and p0 != seq.n_rewound:
        return 0
    seq.n_rewound = 0
    if seq.n_held and p1 > seq.cells[seq.n_held - 1].pos and not _is_behind_output(seq, p0):
        seq.n_outputs = 0
    for i in range(seq.n_held):
        if p0 <= seq.cells[i].pos < p1:
            _let_go(seq.cells[i])
        else:
            seq.cells[n] = seq.cells[i]
            n += 1
    seq.n_held = n
    seq.n_told = min(seq.n_told, n)
    return 1


cdef int32_t fake_seq_add(void *ctx, int32_t seq_id, int32_t p0, int32_t p1, int32_t delta) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    cdef FakeSeq *seq = &model.seqs[seq_id]
    cdef int32_t i
    if not model.can_shift:
        model.bad_calls += 1
    for i in range(seq.n_held):
        if p0 <= seq.cells[i].pos < p1:
            seq.is_written_later = 1
            seq.cells[i].pos += delta
            if seq.cells[i].pos < 0:
                model.bad_calls += 1
    return 1


cdef int32_t fake_seq_div(void *ctx, int32_t seq_id, int32_t p0, int32_t p1, int32_t divisor) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    cdef FakeSeq *seq = &model.seqs[seq_id]
    cdef int32_t i
    if not model.can_shift:
        model.bad_calls += 1
    for i in range(seq.n_held):
        if p0 <= seq.cells[i].pos < p1:
            seq.cells[i].pos //= divisor
    return 1


cdef int32_t fake_seq_cp(void *ctx, int32_t src, int32_t dst) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    cdef FakeCell *cell
    cdef int32_t i
    if _is_bad(model, src) or _is_bad(model, dst):
        return 0
    if src == dst or model.seqs[dst].n_held:
        model.bad_calls += 1
        return 0
    model.n_copies += 1
    if not model.is_unified:
        model.seqs[dst].is_written_later = model.seqs[src].is_read_later = 1
    elif model.seqs[src].is_written_later:
        model.seqs[dst].is_written_later = 1  # the same cells
    for i in range(model.seqs[src].n_held):
        cell = model.seqs[src].cells[i]
        if not model.is_unified:
            cell = fake_new_cell(cell.pos, cell.token, cell.adapters)
        fake_hold(model, &model.seqs[dst], cell)
    return 1


cdef int32_t fake_seq_pos_min(void *ctx, int32_t seq_id) noexcept nogil:
    cdef FakeSeq *seq = &(<FakeModel *>ctx).seqs[seq_id]
    return max(seq.cells[0].pos, load_int(&(<FakeModel *>ctx).n_lost)) if seq.n_held else -1


cdef int32_t fake_can_shift(void *ctx) noexcept nogil:
    return (<FakeModel *>ctx).can_shift


# A state in llama.cpp's own form: one stream, one layer, keys and values of one f32 each: the token, and the adapters.
cdef size_t fake_state_size(void *ctx, int32_t seq_id, int32_t partial) noexcept nogil:
    cdef size_t n = <size_t>(<FakeModel *>ctx).seqs[seq_id].n_held
    if partial:
        return PARTIAL_BYTES
    return 16 + (12 * n + 32 + 8 * n if n else 0)


cdef uint8_t *_put(uint8_t *at, uint32_t value) noexcept nogil:
    memcpy(at, &value, 4)
    return at + 4


# A partial state: how many tokens, and which.
cdef uint64_t _hash(const FakeSeq *seq, int32_t n) noexcept nogil:
    cdef uint64_t hash = 14695981039346656037ull
    cdef int32_t i
    for i in range(n):
        hash = (hash ^ <uint64_t>seq.cells[i].token) * 1099511628211ull
    return hash


cdef size_t _get_partial(const FakeSeq *seq, uint8_t *data) noexcept nogil:
    cdef uint64_t hash = _hash(seq, seq.n_held)
    memset(data, 0, PARTIAL_BYTES)
    memcpy(_put(data, <uint32_t>seq.n_held), &hash, 8)
    return PARTIAL_BYTES


cdef size_t _set_partial(FakeModel *model, FakeSeq *seq, const uint8_t *data, size_t n) noexcept nogil:
    """Elsewhere than where it was made it would be taken, and be wrong."""
    cdef uint64_t hash = 0
    cdef int32_t n_held = 0
    memcpy(&n_held, data, 4)
    memcpy(&hash, data + 4, 8)
    if n != PARTIAL_BYTES or not 0 < n_held <= seq.n_held or _hash(seq, n_held) != hash:
        model.bad_calls += 1
        return 0
    seq.n_rewound = n_held
    return n


cdef size_t fake_state_get(void *ctx, int32_t seq_id, uint8_t *data, size_t n, int32_t partial) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    cdef FakeSeq *seq = &model.seqs[seq_id]
    cdef uint8_t *at = data
    cdef float value
    cdef int32_t k, i
    if _is_bad(model, seq_id) or n != fake_state_size(ctx, seq_id, partial):
        return 0
    model.bad_calls += seq.is_written_later
    if partial:
        return _get_partial(seq, data)
    at = _put(_put(_put(_put(at, 0xaf143cd8), <uint32_t>seq_id), 1), <uint32_t>seq.n_held)
    if seq.n_held == 0:
        return n
    for i in range(seq.n_held):
        at = _put(_put(_put(at, <uint32_t>seq.cells[i].pos), 1), <uint32_t>seq_id)
    at = _put(_put(at, 0), 1)
    for k in range(2):
        at = _put(_put(_put(at, 0), 4), 0)
        for i in range(seq.n_held):
            value = <float>seq.cells[i].token if k == 0 else seq.cells[i].adapters
            memcpy(at, &value, 4)
            at += 4
    return n


cdef size_t fake_state_set(void *ctx, int32_t seq_id, const uint8_t *data, size_t n, int32_t partial) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    cdef FakeSeq *seq = &model.seqs[seq_id]
    cdef uint32_t n_cells = 0
    cdef int32_t pos = 0
    cdef float value = 0, adapters = 0
    cdef uint32_t i
    if _is_bad(model, seq_id) or load_int(&model.fail_state):
        store_int(&model.fail_state, 0)
        return 0
    model.bad_calls += seq.is_written_later or seq.is_read_later
    if partial:
        return _set_partial(model, seq, data, n)
    memcpy(&n_cells, data + 12, 4)
    if n_cells == 0 or n != 48 + 20 * <size_t>n_cells:
        model.bad_calls += 1  # the checker must not let this through
        return 0
    fake_empty(seq)
    for i in range(n_cells):
        memcpy(&pos, data + 16 + 12 * i, 4)
        memcpy(&value, data + 36 + 12 * n_cells + 4 * i, 4)
        memcpy(&adapters, data + 48 + 16 * n_cells + 4 * i, 4)
        fake_hold(model, seq, fake_new_cell(pos, <int32_t>value, adapters))
    return n
