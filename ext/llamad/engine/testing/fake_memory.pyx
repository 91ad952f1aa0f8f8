# Owns: the fake's memory, combined as in llama.cpp: one KV cache, a second one for layers with a sliding window
# (llama-kv-cache-iswa.cpp), a recurrent one, or these together (llama-memory-hybrid.cpp). Runs on the engine thread. A
# call that would make llama.cpp abort is counted in bad_calls, and a decode that would silently compute wrong logits is
# counted in n_wrong.
from libc.stdint cimport INT32_MAX, int32_t, uint64_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memset

from llamad.base.system cimport load_int, sleep_us, store_int
from llamad.engine.testing.fake_cells cimport (
    FakeCell, FakeCells, FakeStream, cells_add, cells_clear, cells_cp, cells_div, cells_find, cells_place, cells_prepare,
    cells_rm, cells_span, cells_stream,
)
from llamad.engine.testing.fake_model cimport FAKE_ROW, FakeModel, FakeSeq
from llamad.engine.testing.fake_owners cimport FAKE_SEQS_MAX, owners_has
from llamad.engine.testing.fake_recurrent cimport (
    FakeSeen, recurrent_add, recurrent_clear, recurrent_cp, recurrent_div, recurrent_learn, recurrent_place, recurrent_pos,
    recurrent_prepare, recurrent_rm, recurrent_seen, seen_append, seen_new,
)
from llamad.engine.testing.fake_split cimport FakeUbatch, split_equal, split_simple


# --- reading ----------------------------------------------------------------------------------------------------

cdef int _has_base(const FakeModel *model) noexcept nogil:
    return model.base.n_streams > 0


cdef int _has_window(const FakeModel *model) noexcept nogil:
    return model.window.n_streams > 0


cdef int _has_states(const FakeModel *model) noexcept nogil:
    return model.recurrent.n_states > 0


cdef FakeCells *_last_cache(FakeModel *model) noexcept nogil:
    """Return the KV cache that determines a sequence's first and last position; the other one may have more."""
    return &model.window if _has_window(model) else &model.base


cdef int32_t memory_held(FakeModel *model, int32_t seq) noexcept nogil:
    """Return how many tokens the sequence holds."""
    cdef const FakeSeen *seen
    if _has_base(model):
        return cells_span(&model.base, seq).n
    seen = recurrent_seen(&model.recurrent, seq)
    return seen.n if seen != NULL else 0


cdef int32_t memory_pos_max(FakeModel *model, int32_t seq) noexcept nogil:
    if not _has_base(model):
        return recurrent_pos(&model.recurrent, seq)
    if not _has_states(model):
        return cells_span(_last_cache(model), seq).pos_max
    return min(cells_span(_last_cache(model), seq).pos_max, recurrent_pos(&model.recurrent, seq))


cdef int memory_ends_with_row(FakeModel *model, int32_t seq) noexcept nogil:
    cdef const FakeSeen *seen
    if _has_base(model):
        return cells_span(&model.base, seq).n > 0 and cells_span(&model.base, seq).last_token == FAKE_ROW
    seen = recurrent_seen(&model.recurrent, seq)
    return seen != NULL and seen.n > 0 and seen.tokens[seen.n - 1] == FAKE_ROW


cdef int _compare(const void *a, const void *b) noexcept nogil:
    cdef const FakeCell *one = (<const FakeCell **>a)[0]
    cdef const FakeCell *other = (<const FakeCell **>b)[0]
    if one.pos != other.pos:
        return -1 if one.pos < other.pos else 1
    return -1 if one.serial < other.serial else one.serial > other.serial


cdef FakeCell **memory_order(FakeModel *model, int32_t seq) noexcept nogil:
    """Return the sequence's cells in the first KV cache, sorted by position. The caller frees the array."""
    cdef FakeStream *stream = cells_stream(&model.base, seq)
    cdef int32_t i, n = 0
    cdef FakeCell **cells = <FakeCell **>malloc(<size_t>(memory_held(model, seq) + 1) * sizeof(void *))
    for i in range(stream.n_touched):
        if owners_has(&stream.cells[i].owners, seq):
            cells[n] = &stream.cells[i]
            n += 1
    qsort(cells, <size_t>n, sizeof(void *), _compare)
    return cells


cdef void memory_clear(FakeModel *model) noexcept nogil:
    cells_clear(&model.base)
    cells_clear(&model.window)
    recurrent_clear(&model.recurrent)
    memset(model.seqs, 0, sizeof(model.seqs))


cdef int memory_is_bad(FakeModel *model, int32_t seq) noexcept nogil:
    if 0 <= seq < model.n_seqs:
        return 0
    model.bad_calls += 1
    return 1


# --- edits ------------------------------------------------------------------------------------------------------

cdef int _is_behind_output(FakeModel *model, int32_t seq, int32_t p0) noexcept nogil:
    """Return whether the removed tokens begin right after a token with an output, and are therefore padding."""
    cdef FakeStream *stream = cells_stream(&model.base, seq)
    cdef int32_t i, n = 0
    if cells_find(&model.base, seq, p0) == NULL or model.seqs[seq].n_told == 0:
        return 0
    for i in range(stream.n_touched):
        if stream.cells[i].pos < p0 and owners_has(&stream.cells[i].owners, seq):
            n += 1
    return n == model.seqs[seq].n_told


cdef void _forget(FakeModel *model, int32_t seq, int32_t p0, int32_t p1) noexcept nogil:
    """Adjust the state after a range before its last position was removed, although it has seen those tokens. llama.cpp
    does that when a context is shifted, so it does not count as wrong: the state is set to have seen only what is
    left."""
    cdef const FakeSeen *old = recurrent_seen(&model.recurrent, seq)
    cdef FakeSeen *seen = seen_new(old.n)
    cdef FakeCell **cells
    cdef int32_t i
    if _has_base(model):
        cells = memory_order(model, seq)
        for i in range(memory_held(model, seq)):
            if cells[i].pos <= recurrent_pos(&model.recurrent, seq):
                seen_append(seen, cells[i].token, cells[i].adapters)
        free(cells)
    else:
        for i in range(old.n):
            if not p0 <= i < p1:
                seen_append(seen, old.tokens[i], old.adapters[i])
    recurrent_learn(&model.recurrent, seq, seen)


cdef void memory_wait(FakeModel *model, const int32_t *is_blocked) noexcept nogil:
    """Wait while the test blocks this call."""
    while load_int(is_blocked):
        store_int(&model.is_waiting, 1)
        sleep_us(1000)
    store_int(&model.is_waiting, 0)


cdef int32_t fake_seq_rm(void *ctx, int32_t seq_id, int32_t p0, int32_t p1) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    cdef FakeSeq *seq = &model.seqs[seq_id]
    cdef int is_cut
    memory_wait(model, &model.is_keeping)
    if memory_is_bad(model, seq_id):
        return 0
    p0 = max(p0, 0)
    p1 = INT32_MAX if p1 < 0 else p1
    is_cut = memory_held(model, seq_id) > 0 and p1 > memory_pos_max(model, seq_id)
    is_cut = is_cut and not _is_behind_output(model, seq_id, p0)
    if _has_states(model) and not recurrent_rm(&model.recurrent, seq_id, p0, p1):
        return 0
    if is_cut:
        seq.n_outputs = 0
    cells_rm(&model.base, seq_id, p0, p1)
    cells_rm(&model.window, seq_id, p0, p1)
    if p0 < p1 <= recurrent_pos(&model.recurrent, seq_id):
        _forget(model, seq_id, p0, p1)
    seq.n_told = min(seq.n_told, memory_held(model, seq_id))
    return 1


cdef int32_t fake_seq_add(void *ctx, int32_t seq_id, int32_t p0, int32_t p1, int32_t delta) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    if memory_is_bad(model, seq_id):
        return 0
    p0 = max(p0, 0)
    p1 = INT32_MAX if p1 < 0 else p1
    model.bad_calls += not fake_can_shift(ctx)
    if delta != 0 and cells_span(&model.base, seq_id).pos_max >= p0 and cells_span(&model.base, seq_id).pos_min < p1:
        model.seqs[seq_id].is_written_later = 1
    model.bad_calls += cells_add(&model.base, seq_id, p0, p1, delta) > 0
    cells_add(&model.window, seq_id, p0, p1, delta)
    recurrent_add(&model.recurrent, seq_id, p0, p1, delta)
    return 1


cdef int32_t fake_seq_div(void *ctx, int32_t seq_id, int32_t p0, int32_t p1, int32_t divisor) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    if memory_is_bad(model, seq_id):
        return 0
    p0 = max(p0, 0)
    p1 = INT32_MAX if p1 < 0 else p1
    model.bad_calls += not fake_can_shift(ctx)
    cells_div(&model.base, seq_id, p0, p1, divisor)
    cells_div(&model.window, seq_id, p0, p1, divisor)
    recurrent_div(&model.recurrent, seq_id, p0, p1, divisor)
    return 1


cdef int _is_beside(FakeModel *model, int32_t src, int32_t dst, int32_t p0) noexcept nogil:
    """Return whether dst has no position of src from p0 on."""
    return model.is_unified and not _has_window(model) and not _has_states(model) and (
        cells_span(&model.base, dst).pos_max < max(p0, cells_span(&model.base, src).pos_min))


cdef int32_t fake_seq_cp(void *ctx, int32_t src, int32_t dst, int32_t p0, int32_t p1) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    cdef int is_whole = p0 < 0 and p1 < 0
    if memory_is_bad(model, src) or memory_is_bad(model, dst):
        return 0
    if src == dst or memory_held(model, dst) and not _is_beside(model, src, dst, p0) or (
            not is_whole and not model.is_unified):
        model.bad_calls += 1
        return 0
    if is_whole and memory_held(model, dst) == 0:
        model.n_copies += 1
    p0 = max(p0, 0)
    p1 = INT32_MAX if p1 < 0 else p1
    if not model.is_unified:
        model.seqs[dst].is_written_later = model.seqs[src].is_read_later = 1
    elif model.seqs[src].is_written_later:
        model.seqs[dst].is_written_later = 1  # the same cells
    cells_cp(&model.base, src, dst, p0, p1)
    cells_cp(&model.window, src, dst, p0, p1)
    recurrent_cp(&model.recurrent, src, dst)
    return 1


cdef int32_t fake_seq_pos_min(void *ctx, int32_t seq_id) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    cdef int32_t pos = recurrent_pos(&model.recurrent, seq_id)
    if memory_is_bad(model, seq_id):
        return -1
    if _has_base(model):
        pos = max(pos, cells_span(_last_cache(model), seq_id).pos_min)
    return max(pos, load_int(&model.n_lost)) if pos >= 0 else pos


cdef int32_t fake_can_shift(void *ctx) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    if _has_window(model) and (_has_states(model) or model.window.n_cells != model.base.n_cells):
        return 0
    return model.can_shift


# --- a batch ----------------------------------------------------------------------------------------------------

cdef int _prepare(FakeModel *model) noexcept nogil:
    """Return whether each kind of memory has room for the split."""
    if _has_states(model) and not recurrent_prepare(&model.recurrent, &model.batch, &model.split):
        return 0
    if _has_base(model) and not cells_prepare(&model.base, &model.batch, &model.split, model.base_slots):
        return 0
    return not _has_window(model) or cells_prepare(&model.window, &model.batch, &model.split, model.window_slots)


cdef int _find_split(FakeModel *model) noexcept nogil:
    """Split the batch as its memory requires. Return whether there is room for it."""
    if model.base.n_streams == 1 and not _has_states(model):
        split_simple(&model.split, &model.batch, model.n_ubatch)
        if _prepare(model):
            return 1
        if not _has_window(model):
            return 0
    split_equal(&model.split, &model.batch, model.n_ubatch, model.base.n_streams != 1,
                model.recurrent.n_rollback + 1 if model.recurrent.n_rollback else 0)
    return _prepare(model)


cdef uint64_t _window_sum(FakeCells *cells, int32_t seq, int32_t pos, int32_t n_swa) noexcept nogil:
    """Return a checksum of the cells of this cache that a token at pos sees through the window."""
    cdef FakeStream *stream = cells_stream(cells, seq)
    cdef uint64_t total = 0
    cdef int32_t i
    for i in range(stream.n_touched):
        if owners_has(&stream.cells[i].owners, seq) and pos - stream.cells[i].pos < n_swa:
            total += (<uint64_t>stream.cells[i].pos << 32 ^ <uint64_t>stream.cells[i].token) * 1099511628211ull
    return total


cdef int _has_other_state(FakeModel *model, int32_t seq) noexcept nogil:
    """Return whether the sequence's state has seen other tokens than those in its cells."""
    cdef const FakeSeen *seen = recurrent_seen(&model.recurrent, seq)
    cdef FakeCell **cells = memory_order(model, seq)
    cdef int is_other = seen.n != memory_held(model, seq)
    cdef int32_t i
    for i in range(0 if is_other else seen.n):
        is_other |= cells[i].token != seen.tokens[i]
    free(cells)
    return is_other


cdef int _is_wrong(FakeModel *model, int32_t seq, int32_t pos, int32_t pos_last) noexcept nogil:
    """Return whether tokens from pos to pos_last were computed from anything but all the tokens before them."""
    if not _has_base(model):
        return 0
    if cells_span(&model.base, seq).pos_max != pos_last:
        return 1  # cells of another text are left
    if _has_window(model):
        if cells_span(&model.window, seq).pos_max != pos_last:
            return 1
        if (_window_sum(&model.window, seq, pos, model.window.n_swa)
                != _window_sum(&model.base, seq, pos, model.window.n_swa)):
            return 1
    return _has_states(model) and _has_other_state(model, seq)


cdef void _check(FakeModel *model, const FakeUbatch *ubatch) noexcept nogil:
    cdef int32_t first[FAKE_SEQS_MAX]
    cdef int32_t last[FAKE_SEQS_MAX]
    cdef int32_t k, i, seq
    memset(first, 0xff, sizeof(first))
    for k in range(ubatch.first, ubatch.first + ubatch.n):
        i = model.split.order[k]
        seq = model.batch.seq[i]
        if first[seq] < 0:
            first[seq] = last[seq] = model.batch.pos[i]
        last[seq] = max(last[seq], model.batch.pos[i])
    for seq in range(FAKE_SEQS_MAX):
        if first[seq] >= 0:
            model.n_wrong += _is_wrong(model, seq, first[seq], last[seq])


cdef int memory_decode(FakeModel *model) noexcept nogil:
    """Write model.batch to the memory. Return 0 if there is no room for it."""
    cdef const FakeUbatch *ubatch
    cdef int32_t u
    if not _find_split(model):
        return 0
    for u in range(model.split.n):
        ubatch = &model.split.ubatches[u]
        if _has_base(model):
            cells_place(&model.base, &model.batch, &model.split, ubatch, model.base_slots)
        if _has_window(model):
            cells_place(&model.window, &model.batch, &model.split, ubatch, model.window_slots)
        if _has_states(model):
            recurrent_place(&model.recurrent, &model.batch, &model.split, ubatch)
        _check(model, ubatch)
    model.bad_calls += model.recurrent.n_aborts
    model.recurrent.n_aborts = 0
    return 1
