# Splits a batch into ubatches like llama.cpp, for the fake.
from libc.stdint cimport int32_t

ctypedef struct FakeBatch:     # tokens, or rows of embeddings with FAKE_ROW as token; each of one sequence
    int32_t n
    int32_t *token
    int32_t *pos
    int32_t *seq
    float *adapters            # the adapters that compute each token

ctypedef struct FakeUbatch:
    int32_t first              # its tokens are order[first:first + n]
    int32_t n
    int32_t n_seqs             # sequences, one after the other, with equally many tokens each; 0: any order

ctypedef struct FakeSplit:
    int32_t n
    FakeUbatch *ubatches
    int32_t *order             # indexes of the batch's tokens

cdef void split_simple(FakeSplit *split, const FakeBatch *batch, int32_t n_ubatch) noexcept nogil
cdef void split_equal(FakeSplit *split, const FakeBatch *batch, int32_t n_ubatch, int is_sequential,
                      int32_t n_tail) noexcept nogil
cdef void split_arrivals(const FakeSplit *split, const int32_t *row, int32_t *arrives) noexcept nogil
