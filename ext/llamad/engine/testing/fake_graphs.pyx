# Owns: the fake's graphs, as llama.cpp makes them with a stream for each sequence: of neighbours, as far as all of
# them go, then of what is left of the longer ones. A GPU sends the rows of one graph after the other, so that they
# are not in the batch's order until llama.cpp has put them there.
from libc.stdint cimport int32_t
from libc.string cimport memset

from llamad.base.table cimport llamad_batch
from llamad.engine.testing.fake_model cimport FAKE_SEQS_MAX


cdef int32_t _send(const llamad_batch *batch, const int32_t *done, int32_t first, int32_t end, int32_t n_each,
                   int32_t *arrives, int32_t n_sent) noexcept nogil:
    """The rows of a graph, behind n_sent others. How many there are then."""
    cdef int32_t seen[FAKE_SEQS_MAX]
    cdef int32_t i, seq
    memset(seen, 0, sizeof(seen))
    for i in range(batch.n_tokens):
        seq = batch.seq_id[i][0]
        if first <= seq < end and done[seq] <= seen[seq] < done[seq] + n_each and batch.output[i]:
            arrives[i] = n_sent
            n_sent += 1
        seen[seq] += 1
    return n_sent


cdef int32_t fake_graphs(const llamad_batch *batch, int32_t *arrives) noexcept nogil:
    """How many there are; and for each token with an output the place at which its row comes."""
    cdef int32_t left[FAKE_SEQS_MAX + 1]
    cdef int32_t done[FAKE_SEQS_MAX]
    cdef int32_t n = 0, n_sent = 0, i, first, end, n_each
    memset(left, 0, sizeof(left))
    memset(done, 0, sizeof(done))
    for i in range(batch.n_tokens):
        left[batch.seq_id[i][0]] += 1
    while True:
        first = 0
        while first < FAKE_SEQS_MAX and left[first] == 0:
            first += 1
        if first == FAKE_SEQS_MAX:
            return n
        end, n_each = first, left[first]
        while left[end]:
            n_each = min(n_each, left[end])
            end += 1
        n_sent = _send(batch, done, first, end, n_each, arrives, n_sent)
        for i in range(first, end):
            left[i] -= n_each
            done[i] += n_each
        n += 1
