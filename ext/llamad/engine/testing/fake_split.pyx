# Owns: the fake's ubatches, made like those of llama-batch.cpp: each is one graph. A simple split takes the tokens in
# their order; an equal one takes as many of each sequence as all of them have, and only of adjacent sequences if it is
# sequential. Runs on the engine thread. Must not touch any memory but the split's own.
from libc.stdint cimport int32_t
from libc.string cimport memset

from llamad.engine.testing.fake_owners cimport FAKE_SEQS_MAX


cdef void split_simple(FakeSplit *split, const FakeBatch *batch, int32_t n_ubatch) noexcept nogil:
    cdef int32_t i
    split.n = 0
    for i in range(batch.n):
        split.order[i] = i
        if i % n_ubatch == 0:
            split.ubatches[split.n].first = i
            split.ubatches[split.n].n = split.ubatches[split.n].n_seqs = 0
            split.n += 1
        split.ubatches[split.n - 1].n += 1


cdef int32_t _choose(const FakeBatch *batch, const int32_t *n_left, const int32_t *n_done, int32_t n_ubatch,
                     int is_sequential, int32_t *seqs) noexcept nogil:
    """Choose the sequences of the next ubatch, in the batch order of their next tokens. Return how many there are."""
    cdef int32_t seen[FAKE_SEQS_MAX]
    cdef int32_t i, seq, n = 0
    memset(seen, 0, sizeof(seen))
    for i in range(batch.n):
        seq = batch.seq[i]
        seen[seq] += 1
        # Tokens in earlier ubatches do not count. Of the remaining ones, only the first can add its sequence, unless a
        # lower sequence had to come before it.
        if seen[seq] <= n_done[seq] or n_left[seq] == 0:
            continue
        if _has(seqs, n, seq) or (is_sequential and n > 0 and seq != seqs[n - 1] + 1):
            continue
        seqs[n] = seq
        n += 1
        if n > n_ubatch:
            break
    return n


cdef int _has(const int32_t *seqs, int32_t n, int32_t seq) noexcept nogil:
    cdef int32_t i
    for i in range(n):
        if seqs[i] == seq:
            return 1
    return 0


cdef int32_t _take(FakeSplit *split, const FakeBatch *batch, int32_t seq, int32_t n_done, int32_t n_each,
                   int32_t n_order) noexcept nogil:
    """Append the sequence's next n_each tokens to the order. Return its new length."""
    cdef int32_t i, n = 0
    for i in range(batch.n):
        if batch.seq[i] == seq:
            if n >= n_done:
                split.order[n_order] = i
                n_order += 1
            n += 1
            if n == n_done + n_each:
                break
    return n_order


cdef int32_t _keep_tails(const int32_t *n_left, const int32_t *seqs, int32_t n_seqs, int32_t n_ubatch, int32_t n_tail,
                         int32_t *n_each) noexcept nogil:
    """Return how many of the sequences are in the ubatch if the last n_tail tokens of none may be split; change how
    many tokens of each."""
    cdef int32_t n = 0
    while n < n_seqs and not 0 < n_left[seqs[n]] - n_each[0] < n_tail:
        n += 1
    if n == 0:
        n_each[0] = n_left[seqs[0]] if n_left[seqs[0]] <= n_ubatch else n_left[seqs[0]] - n_tail
    return max(1, n)


cdef void split_equal(FakeSplit *split, const FakeBatch *batch, int32_t n_ubatch, int is_sequential,
                      int32_t n_tail) noexcept nogil:
    """n_tail: the last tokens of each sequence that must be in one ubatch; 0: any may be split."""
    cdef int32_t n_left[FAKE_SEQS_MAX]
    cdef int32_t n_done[FAKE_SEQS_MAX]
    cdef int32_t seqs[FAKE_SEQS_MAX + 1]
    cdef int32_t i, n_seqs, n_each, n_order = 0
    cdef FakeUbatch *ubatch
    memset(n_left, 0, sizeof(n_left))
    memset(n_done, 0, sizeof(n_done))
    split.n = 0
    for i in range(batch.n):
        n_left[batch.seq[i]] += 1
    while n_order < batch.n:
        n_seqs = _choose(batch, n_left, n_done, n_ubatch, is_sequential, seqs)
        n_each = max(1, n_ubatch // n_seqs)
        for i in range(n_seqs):
            n_each = min(n_each, n_left[seqs[i]])
        if n_tail:
            n_seqs = _keep_tails(n_left, seqs, n_seqs, n_ubatch, n_tail, &n_each)
        ubatch = &split.ubatches[split.n]
        split.n += 1
        ubatch.first = n_order
        ubatch.n = n_seqs * n_each
        ubatch.n_seqs = n_seqs
        for i in range(n_seqs):
            n_order = _take(split, batch, seqs[i], n_done[seqs[i]], n_each, n_order)
            n_done[seqs[i]] += n_each
            n_left[seqs[i]] -= n_each


cdef void split_arrivals(const FakeSplit *split, const int32_t *row, int32_t *arrives) noexcept nogil:
    """Compute the order in which the rows of logits arrive: a GPU sends the rows of one graph after the other, so they
    are not in batch order until llama.cpp has reordered them."""
    cdef int32_t u, i, n = 0
    for u in range(split.n):
        for i in range(split.ubatches[u].first, split.ubatches[u].first + split.ubatches[u].n):
            arrives[split.order[i]] = -1
            if row[split.order[i]] >= 0:
                arrives[split.order[i]] = n
                n += 1
