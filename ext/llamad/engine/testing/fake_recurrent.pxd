# The recurrent memory of the fake: one state per sequence, which copies share until one of them continues.
from libc.stdint cimport int32_t

from llamad.engine.testing.fake_owners cimport FAKE_SEQS_MAX, FakeOwners
from llamad.engine.testing.fake_split cimport FakeBatch, FakeSplit, FakeUbatch

ctypedef struct FakeSeen:      # the tokens that a state has seen
    int32_t n_refs
    int32_t n
    int32_t n_max
    int32_t *tokens
    float *adapters

# What becomes of a sequence's state at its next decode.
cdef enum FakeRollback:
    ROLLBACK_NONE = 0
    ROLLBACK_PENDING = 1       # some tokens are taken back; until then nothing more can be removed
    ROLLBACK_LOST = 2          # it was copied from a state with a pending rollback, but the tokens were not taken back

ctypedef struct FakeState:
    int32_t pos                # position of its last token; -1: empty
    int32_t src                # the row that holds its data; -1: none, it begins with zeros
    int32_t next_src           # the row from which the running graph copies it
    int32_t tail               # the state of the sequence with this cell's number; -1: none
    FakeOwners owners

ctypedef struct FakeRecurrent:
    int32_t n_states           # 0: there is no such memory
    int32_t n_rollback         # so many of a sequence's last tokens can be removed; llama.cpp's n_rs_seq
    int32_t head
    int32_t n_used
    int32_t n                  # states from head on that the running graph copies
    int32_t n_aborts           # assertions of llama.cpp that failed
    int32_t n_last[FAKE_SEQS_MAX]        # tokens of each sequence in its last ubatch
    FakeRollback rollbacks[FAKE_SEQS_MAX]  # of each sequence
    FakeState states[FAKE_SEQS_MAX]
    FakeSeen *rows[FAKE_SEQS_MAX]

cdef void recurrent_init(FakeRecurrent *memory, int32_t n_states, int32_t n_rollback) noexcept nogil
cdef void recurrent_clear(FakeRecurrent *memory) noexcept nogil
cdef int32_t recurrent_pos(const FakeRecurrent *memory, int32_t seq) noexcept nogil
cdef const FakeSeen *recurrent_seen(const FakeRecurrent *memory, int32_t seq) noexcept nogil
cdef FakeSeen *seen_new(int32_t n_max) noexcept nogil
cdef void seen_append(FakeSeen *seen, int32_t token, float adapters) noexcept nogil
cdef void recurrent_learn(FakeRecurrent *memory, int32_t seq, FakeSeen *seen) noexcept nogil
cdef int recurrent_rm(FakeRecurrent *memory, int32_t seq, int32_t p0, int32_t p1) noexcept nogil
cdef void recurrent_cp(FakeRecurrent *memory, int32_t src, int32_t dst) noexcept nogil
cdef void recurrent_add(FakeRecurrent *memory, int32_t seq, int32_t p0, int32_t p1, int32_t delta) noexcept nogil
cdef void recurrent_div(FakeRecurrent *memory, int32_t seq, int32_t p0, int32_t p1, int32_t divisor) noexcept nogil
cdef int recurrent_prepare(FakeRecurrent *memory, const FakeBatch *batch, const FakeSplit *split) noexcept nogil
cdef void recurrent_place(FakeRecurrent *memory, const FakeBatch *batch, const FakeSplit *split,
                          const FakeUbatch *ubatch) noexcept nogil
cdef int recurrent_restore(FakeRecurrent *memory, int32_t seq, int32_t pos, FakeSeen *seen) noexcept nogil
