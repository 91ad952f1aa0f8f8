# Owns: one KV cache of the fake, with the rules of llama-kv-cache.cpp: which cells a ubatch gets, who loses them, and
# what edits of positions do. Runs on the engine thread. It stores tokens in place of keys and values, and does not know
# other caches.
#
# With a sliding window, a cell may be taken from its only owner once that owner's next token cannot see it. The owner
# then loses all earlier positions too, so that its positions have no gap.
from libc.stdint cimport INT32_MAX, int32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from llamad.engine.testing.fake_owners cimport (
    FAKE_SEQS_MAX, owners_add, owners_clear, owners_first, owners_has, owners_remove,
)


cdef void cells_init(FakeCells *cells, int32_t n_streams, int32_t n_cells, int32_t n_swa) noexcept nogil:
    memset(cells, 0, sizeof(FakeCells))
    cells.n_streams = n_streams
    cells.n_cells = n_cells
    cells.n_swa = n_swa
    cells_clear(cells)


cdef void cells_clear(FakeCells *cells) noexcept nogil:
    cdef int32_t i
    for i in range(FAKE_SEQS_MAX):
        if cells.streams[i].cells != NULL:
            memset(cells.streams[i].cells, 0, <size_t>cells.streams[i].n_touched * sizeof(FakeCell))
        cells.streams[i].head = cells.streams[i].n_used = cells.streams[i].n_touched = 0
        cells.spans[i].is_stale = 1


cdef void cells_free(FakeCells *cells) noexcept nogil:
    cdef int32_t i
    for i in range(FAKE_SEQS_MAX):
        free(cells.streams[i].cells)
        cells.streams[i].cells = NULL


# --- reading ----------------------------------------------------------------------------------------------------

cdef int32_t _stream_of(const FakeCells *cells, int32_t seq) noexcept nogil:
    return seq if cells.n_streams > 1 else 0


cdef FakeStream *cells_stream(FakeCells *cells, int32_t seq) noexcept nogil:
    return &cells.streams[_stream_of(cells, seq)]


cdef void _grow(FakeSpan *span, const FakeCell *cell) noexcept nogil:
    """Extend the span by a cell that the sequence holds."""
    if span.n == 0 or cell.pos < span.pos_min:
        span.pos_min = cell.pos
    if span.n == 0 or cell.pos > span.pos_max or (cell.pos == span.pos_max and cell.serial > span.last_serial):
        span.pos_max = cell.pos
        span.last_token = cell.token
        span.last_serial = cell.serial
    span.n += 1


cdef FakeSpan *cells_span(FakeCells *cells, int32_t seq) noexcept nogil:
    cdef FakeSpan *span = &cells.spans[seq]
    cdef FakeStream *stream = cells_stream(cells, seq)
    cdef int32_t i
    if span.is_stale:
        memset(span, 0, sizeof(FakeSpan))
        span.pos_min = span.pos_max = -1
        for i in range(stream.n_touched):
            if owners_has(&stream.cells[i].owners, seq):
                _grow(span, &stream.cells[i])
    return span


cdef FakeCell *cells_find(FakeCells *cells, int32_t seq, int32_t pos) noexcept nogil:
    """Return the sequence's cell at this position, or NULL."""
    cdef FakeStream *stream = cells_stream(cells, seq)
    cdef int32_t i
    for i in range(stream.n_touched):
        if stream.cells[i].pos == pos and owners_has(&stream.cells[i].owners, seq):
            return &stream.cells[i]
    return NULL


cdef int cells_is_masked(const FakeCells *cells, int32_t pos, int32_t pos_query) noexcept nogil:
    """Return whether the window hides a cell at pos from a token at pos_query."""
    return cells.n_swa > 0 and pos_query - pos >= cells.n_swa


cdef int32_t cells_used(const FakeCells *cells) noexcept nogil:
    cdef int32_t i, n = 0
    for i in range(FAKE_SEQS_MAX):
        n += cells.streams[i].n_used
    return n


# --- owners -----------------------------------------------------------------------------------------------------

cdef void _set_stale(FakeCells *cells, const FakeCell *cell) noexcept nogil:
    cdef int32_t seq
    for seq in range(FAKE_SEQS_MAX):
        if owners_has(&cell.owners, seq):
            cells.spans[seq].is_stale = 1


cdef void _own(FakeCells *cells, FakeCell *cell, int32_t seq) noexcept nogil:
    if owners_has(&cell.owners, seq):
        return
    owners_add(&cell.owners, seq)
    if not cells.spans[seq].is_stale:
        _grow(&cells.spans[seq], cell)


cdef int _disown(FakeCells *cells, FakeStream *stream, FakeCell *cell, int32_t seq) noexcept nogil:
    """Remove the owner. Return whether the cell is empty now."""
    cells.spans[seq].is_stale = 1
    owners_remove(&cell.owners, seq)
    if cell.owners.n:
        return 0
    stream.n_used -= 1
    return 1


cdef void _empty(FakeCells *cells, FakeStream *stream, FakeCell *cell) noexcept nogil:
    if cell.owners.n:
        _set_stale(cells, cell)
        owners_clear(&cell.owners)
        stream.n_used -= 1


cdef int _is_in(const FakeCell *cell, int32_t seq, int32_t p0, int32_t p1) noexcept nogil:
    return p0 <= cell.pos < p1 and owners_has(&cell.owners, seq)


# --- edits ------------------------------------------------------------------------------------------------------

cdef void cells_rm(FakeCells *cells, int32_t seq, int32_t p0, int32_t p1) noexcept nogil:
    cdef FakeStream *stream = cells_stream(cells, seq)
    cdef int32_t i, first = cells.n_cells
    for i in range(stream.n_touched):
        if _is_in(&stream.cells[i], seq, p0, p1) and _disown(cells, stream, &stream.cells[i], seq):
            first = min(first, i)
    stream.head = min(stream.head, first)
    while stream.n_touched and stream.cells[stream.n_touched - 1].owners.n == 0:
        stream.n_touched -= 1


cdef int32_t cells_add(FakeCells *cells, int32_t seq, int32_t p0, int32_t p1, int32_t delta) noexcept nogil:
    """Move the cells for all their owners. Return how many got a position below 0, and are empty now."""
    cdef FakeStream *stream = cells_stream(cells, seq)
    cdef int32_t i, n = 0, first = cells.n_cells
    if delta == 0 or p0 == p1:
        return 0
    for i in range(stream.n_touched):
        if not _is_in(&stream.cells[i], seq, p0, p1):
            continue
        _set_stale(cells, &stream.cells[i])
        stream.cells[i].pos += delta
        if stream.cells[i].pos < 0:
            _empty(cells, stream, &stream.cells[i])
            first = min(first, i)
            n += 1
    stream.head = first if first < cells.n_cells else 0
    return n


cdef void cells_div(FakeCells *cells, int32_t seq, int32_t p0, int32_t p1, int32_t divisor) noexcept nogil:
    cdef FakeStream *stream = cells_stream(cells, seq)
    cdef int32_t i
    for i in range(stream.n_touched):
        if _is_in(&stream.cells[i], seq, p0, p1):
            _set_stale(cells, &stream.cells[i])
            stream.cells[i].pos //= divisor


cdef FakeCell *_open(FakeCells *cells, FakeStream *stream) noexcept nogil:
    if stream.cells == NULL:
        stream.cells = <FakeCell *>calloc(<size_t>cells.n_cells, sizeof(FakeCell))
    return stream.cells


cdef void cells_cp(FakeCells *cells, int32_t src, int32_t dst, int32_t p0, int32_t p1) noexcept nogil:
    """Copy positions of a sequence. In one stream dst becomes an owner of the cells; between streams, where all are
    copied, it gets its own ones."""
    cdef FakeStream *source = cells_stream(cells, src)
    cdef FakeStream *target = cells_stream(cells, dst)
    cdef FakeCell *cell
    cdef int32_t i
    if source == target:
        for i in range(source.n_touched):
            if owners_has(&source.cells[i].owners, src) and p0 <= source.cells[i].pos < p1:
                _own(cells, &source.cells[i], dst)
        return
    cells_rm(cells, dst, 0, INT32_MAX)
    for i in range(source.n_touched):
        if owners_has(&source.cells[i].owners, src):
            cell = &_open(cells, target)[i]
            cell[0] = source.cells[i]
            owners_clear(&cell.owners)
            _own(cells, cell, dst)
            target.n_used += 1
            target.n_touched = i + 1
    target.head = source.head


# --- room -------------------------------------------------------------------------------------------------------

cdef int _can_take(FakeCells *cells, const FakeCell *cell) noexcept nogil:
    cdef int32_t owner
    if cell.owners.n != 1:
        return cell.owners.n == 0
    if cells.n_swa == 0:
        return 0
    owner = owners_first(&cell.owners)
    return cells_is_masked(cells, cell.pos, cells_span(cells, owner).pos_max + 1)


cdef int _find_room(FakeCells *cells, int32_t seq, int32_t n, int32_t *slots) noexcept nogil:
    """Find cells for n tokens in the sequence's stream. Return whether there are enough. Changes nothing."""
    cdef FakeStream *stream = cells_stream(cells, seq)
    cdef FakeCell *all = _open(cells, stream)
    cdef int32_t head = stream.head, n_tested = 0, n_found = 0
    if head > stream.n_used + 2 * n:
        head = 0  # there is room before it
    if n > cells.n_cells:
        return 0
    while n_tested < cells.n_cells:
        if head == cells.n_cells:
            head = 0
        if _can_take(cells, &all[head]):
            slots[n_found] = head
            n_found += 1
            if n_found == n:
                return 1
        head += 1
        n_tested += 1
    return 0


cdef int32_t _n_streams(const FakeCells *cells, const FakeUbatch *ubatch) noexcept nogil:
    """Return in how many streams the ubatch is placed."""
    return ubatch.n_seqs if cells.n_streams > 1 else 1


cdef int _find_slots(FakeCells *cells, const FakeBatch *batch, const FakeSplit *split, const FakeUbatch *ubatch,
                     int32_t *slots) noexcept nogil:
    cdef int32_t n_streams = _n_streams(cells, ubatch), s, first
    for s in range(n_streams):
        first = ubatch.first + s * (ubatch.n // n_streams)
        if not _find_room(cells, batch.seq[split.order[first]], ubatch.n // n_streams, slots + first):
            return 0
    return 1


cdef void cells_place(FakeCells *cells, const FakeBatch *batch, const FakeSplit *split, const FakeUbatch *ubatch,
                      const int32_t *slots) noexcept nogil:
    """Write the ubatch to these cells. The owner of such a cell loses it, and all positions before it."""
    cdef int32_t lost[FAKE_SEQS_MAX]
    cdef FakeStream *stream
    cdef FakeCell *cell
    cdef int32_t k, i, seq
    memset(lost, 0xff, sizeof(lost))
    for k in range(ubatch.first, ubatch.first + ubatch.n):
        i = split.order[k]
        stream = cells_stream(cells, batch.seq[i])
        cell = &stream.cells[slots[k]]
        if cell.owners.n:
            seq = owners_first(&cell.owners)
            lost[seq] = max(lost[seq], cell.pos)
            _empty(cells, stream, cell)
        cells.last_serial += 1
        cell.pos = batch.pos[i]
        cell.token = batch.token[i]
        cell.adapters = batch.adapters[i]
        cell.serial = cells.last_serial
        stream.n_used += 1
        stream.n_touched = max(stream.n_touched, slots[k] + 1)
        _own(cells, cell, batch.seq[i])
    for seq in range(FAKE_SEQS_MAX):
        if lost[seq] >= 0 and cells_span(cells, seq).pos_min <= lost[seq]:
            cells_rm(cells, seq, cells_span(cells, seq).pos_min, lost[seq] + 1)
    for k in range(ubatch.first, ubatch.first + ubatch.n):
        cells_stream(cells, batch.seq[split.order[k]]).head = slots[k] + 1  # after the last cell


cdef void _put_back(FakeCells *cells, const FakeBatch *batch, const FakeSplit *split, const FakeUbatch *ubatch,
                    const int32_t *slots, const FakeCell *old, const int32_t *heads) noexcept nogil:
    """Restore the cells of the ubatch. As in llama.cpp, other cells that their owners lost stay lost, and with streams
    the heads become those of the first streams."""
    cdef int32_t n_streams = _n_streams(cells, ubatch), n_each = ubatch.n // n_streams, s, k
    cdef FakeStream *stream
    cdef FakeCell *cell
    for s in range(n_streams):
        stream = cells_stream(cells, batch.seq[split.order[ubatch.first + s * n_each]])
        for k in range(ubatch.first + s * n_each, ubatch.first + (s + 1) * n_each):
            cell = &stream.cells[slots[k]]
            _empty(cells, stream, cell)
            cell[0] = old[k]
            _set_stale(cells, cell)
            stream.n_used += cell.owners.n > 0
            stream.n_touched = max(stream.n_touched, slots[k] + 1)
        stream.head = heads[s]


cdef int cells_prepare(FakeCells *cells, const FakeBatch *batch, const FakeSplit *split, int32_t *slots) noexcept nogil:
    """Find cells for all ubatches, each after the earlier ones were placed. Return whether there are enough."""
    cdef FakeCell *old = <FakeCell *>malloc(<size_t>batch.n * sizeof(FakeCell))
    cdef int32_t *heads = <int32_t *>malloc(<size_t>split.n * FAKE_SEQS_MAX * sizeof(int32_t))
    cdef const FakeUbatch *ubatch
    cdef int32_t u, k, n_placed = 0
    for u in range(split.n):
        ubatch = &split.ubatches[u]
        if not _find_slots(cells, batch, split, ubatch, slots):
            break
        if split.n == 1 and _n_streams(cells, ubatch) == 1 and batch.seq[split.order[ubatch.first]] == 0:
            n_placed = -1  # placing and restoring it would change nothing, but takes long if there are many cells
            break
        for k in range(FAKE_SEQS_MAX):
            heads[u * FAKE_SEQS_MAX + k] = cells.streams[k].head
        for k in range(ubatch.first, ubatch.first + ubatch.n):
            old[k] = cells_stream(cells, batch.seq[split.order[k]]).cells[slots[k]]
        cells_place(cells, batch, split, ubatch, slots)
        n_placed += 1
    for u in range(n_placed - 1, -1, -1):
        _put_back(cells, batch, split, &split.ubatches[u], slots, old, heads + u * FAKE_SEQS_MAX)
    free(old)
    free(heads)
    return n_placed == split.n or n_placed < 0


cdef int cells_insert(FakeCells *cells, const FakeBatch *batch) noexcept nogil:
    """Write a batch of one sequence, of any length. Return 0 if there is no room; then nothing has changed."""
    cdef FakeUbatch ubatch = FakeUbatch(0, batch.n, 1)
    cdef FakeSplit split = FakeSplit(1, &ubatch, <int32_t *>malloc(<size_t>batch.n * sizeof(int32_t)))
    cdef int32_t *slots = <int32_t *>malloc(<size_t>batch.n * sizeof(int32_t))
    cdef int32_t i
    cdef int has_room
    for i in range(batch.n):
        split.order[i] = i
    has_room = _find_slots(cells, batch, &split, &ubatch, slots)
    if has_room:
        cells_place(cells, batch, &split, &ubatch, slots)
    free(split.order)
    free(slots)
    return has_room
