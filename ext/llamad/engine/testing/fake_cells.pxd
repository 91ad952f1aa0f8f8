# One KV cache of the fake: cells with a position and owners, in one stream or in one per sequence.
from libc.stdint cimport int32_t, uint64_t

from llamad.engine.testing.fake_owners cimport FAKE_SEQS_MAX, FakeOwners
from llamad.engine.testing.fake_split cimport FakeBatch, FakeSplit, FakeUbatch

ctypedef struct FakeCell:
    int32_t pos
    int32_t token
    float adapters             # the adapters that computed it
    uint64_t serial            # the order in which cells of one position were written
    FakeOwners owners          # none: the cell is empty

ctypedef struct FakeStream:
    FakeCell *cells            # NULL until something is written
    int32_t head               # where the next search for room begins
    int32_t n_used
    int32_t n_touched          # no cell from this index on is used

ctypedef struct FakeSpan:      # what a sequence holds
    int32_t n
    int32_t pos_min            # -1 if it holds nothing, like pos_max
    int32_t pos_max
    int32_t last_token         # the token of the cell at pos_max that was written last
    uint64_t last_serial
    int32_t is_stale           # it must be computed again

ctypedef struct FakeCells:
    int32_t n_streams          # 0: there is no such cache
    int32_t n_cells            # per stream
    int32_t n_swa              # size of the sliding window; 0: none
    uint64_t last_serial
    FakeStream streams[FAKE_SEQS_MAX]
    FakeSpan spans[FAKE_SEQS_MAX]

cdef void cells_init(FakeCells *cells, int32_t n_streams, int32_t n_cells, int32_t n_swa) noexcept nogil
cdef void cells_clear(FakeCells *cells) noexcept nogil
cdef void cells_free(FakeCells *cells) noexcept nogil
cdef FakeStream *cells_stream(FakeCells *cells, int32_t seq) noexcept nogil
cdef FakeSpan *cells_span(FakeCells *cells, int32_t seq) noexcept nogil
cdef FakeCell *cells_find(FakeCells *cells, int32_t seq, int32_t pos) noexcept nogil
cdef int cells_is_masked(const FakeCells *cells, int32_t pos, int32_t pos_query) noexcept nogil
cdef int32_t cells_used(const FakeCells *cells) noexcept nogil
cdef void cells_rm(FakeCells *cells, int32_t seq, int32_t p0, int32_t p1) noexcept nogil
cdef int32_t cells_add(FakeCells *cells, int32_t seq, int32_t p0, int32_t p1, int32_t delta) noexcept nogil
cdef void cells_div(FakeCells *cells, int32_t seq, int32_t p0, int32_t p1, int32_t divisor) noexcept nogil
cdef void cells_cp(FakeCells *cells, int32_t src, int32_t dst, int32_t p0, int32_t p1) noexcept nogil
cdef int cells_prepare(FakeCells *cells, const FakeBatch *batch, const FakeSplit *split, int32_t *slots) noexcept nogil
cdef void cells_place(FakeCells *cells, const FakeBatch *batch, const FakeSplit *split, const FakeUbatch *ubatch,
                      const int32_t *slots) noexcept nogil
cdef int cells_insert(FakeCells *cells, const FakeBatch *batch) noexcept nogil
