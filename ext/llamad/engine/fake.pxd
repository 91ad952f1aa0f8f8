# A model of bytes behind the table, for tests of everything above llama.cpp.
from libc.stdint cimport int32_t, int64_t, uint64_t

cdef enum:
    FAKE_VOCAB = 259       # BOS, EOS, UNK, then the 256 bytes
    FAKE_SEQS_MAX = 256

ctypedef struct FakeModel:
    int32_t n_ctx
    int32_t n_batch
    int64_t decode_us          # how long a decode takes
    int64_t token_us           # and each of its tokens
    int32_t is_blocked         # decode waits while set
    int32_t fail_code          # the next decode returns it once
    int32_t n_rebuild_failures # so many rebuilds fail first
    int32_t can_shift
    uint64_t n_decodes
    uint64_t n_rebuilds
    int32_t n_samplers         # open ones: a leak shows here
    int32_t n_held[FAKE_SEQS_MAX]     # tokens of each sequence
    int32_t base[FAKE_SEQS_MAX]       # position of the sequence's first output, -1: none yet
    const unsigned char *script
    int32_t n_script
    int32_t *batch_token
    int32_t *batch_pos
    int32_t *batch_seq
    int32_t n_tokens
    int32_t bad_calls          # rules of llama.cpp that a caller broke
