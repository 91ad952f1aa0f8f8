# Owns: the fake's vocabulary, in which each byte is a token, and its sampler, which takes the largest logit. Any thread
# may use the vocabulary; the samplers belong to the engine thread. Must not touch the fake's memory.
from libc.stdint cimport int32_t
from libc.stdlib cimport calloc, free

from llamad.base.function_table cimport llamad_bias, llamad_candidate, llamad_sampling, llamad_tokenize_limits
from llamad.engine.testing.fake_model cimport FAKE_VOCAB, FakeModel

cdef enum:
    LETTER = 97  # tokens that are no byte are letters

ctypedef struct FakeSampler:
    int32_t ban_eos
    FakeModel *model


cdef int32_t fake_tokenize(const void *vocab, const char *text, int32_t n_text, int32_t *tokens, int32_t n_max,
                           int32_t add_special, int32_t parse_special,
                           const llamad_tokenize_limits *limits) noexcept nogil:
    cdef int32_t n = n_text + (1 if add_special else 0), i, at = 0
    if n > n_max:
        return -n
    if add_special:
        tokens[0] = BOS
        at = 1
    for i in range(n_text):
        tokens[at + i] = FIRST_BYTE + <unsigned char>text[i]
    return n


cdef int32_t fake_piece(const void *vocab, int32_t token, char *buf, int32_t n_buf, int32_t special) noexcept nogil:
    if token < FIRST_BYTE:
        return 0
    if n_buf < 1:
        return -1
    buf[0] = <char>(token - FIRST_BYTE if token < FAKE_VOCAB else LETTER + token % 26)
    return 1


cdef int32_t fake_detokenize(const void *vocab, const int32_t *tokens, int32_t n_tokens, char *text, int32_t n_max,
                             int32_t remove_special, int32_t unparse_special) noexcept nogil:
    cdef int32_t i, n = 0
    for i in range(n_tokens):
        if tokens[i] >= FIRST_BYTE:
            if n < n_max:
                text[n] = <char>(tokens[i] - FIRST_BYTE)
            n += 1
    return n if n <= n_max else -n


cdef int32_t fake_is_eog(const void *vocab, int32_t token) noexcept nogil:
    return token == EOS


cdef void *fake_sampler_open(const void *vocab, const llamad_sampling *sampling, const llamad_bias *bias, int32_t n_bias,
                             const char *breakers, int32_t n_breakers) noexcept nogil:
    cdef FakeSampler *sampler = <FakeSampler *>calloc(1, sizeof(FakeSampler))
    cdef int32_t i
    sampler.model = <FakeModel *>vocab
    sampler.model.n_samplers += 1
    for i in range(n_bias):
        if bias[i].token == EOS and bias[i].bias < -1e9:
            sampler.ban_eos = 1
    return sampler


cdef void fake_sampler_accept(void *sampler, int32_t token) noexcept nogil:
    pass


cdef int32_t fake_sampler_sample(void *sampler, const float *logits, int32_t n_vocab, void *scratch,
                                 llamad_candidate **data, int32_t *n) noexcept nogil:
    cdef int32_t i, best = FIRST_BYTE + 46  # a full stop, if EOS is banned
    data[0] = <llamad_candidate *>scratch
    n[0] = 1
    for i in range(n_vocab):
        if logits[i] > 5 and not (i == EOS and (<FakeSampler *>sampler).ban_eos):
            best = i
    data[0].id = best
    data[0].logit = logits[best]
    data[0].p = 1
    return best


cdef void fake_sampler_close(void *sampler) noexcept nogil:
    (<FakeSampler *>sampler).model.n_samplers -= 1
    free(sampler)


cdef void fake_sort(llamad_candidate *data, int32_t n) noexcept nogil:
    cdef llamad_candidate one
    cdef int32_t i, j
    for i in range(1, n):
        one = data[i]
        j = i
        while j > 0 and data[j - 1].logit < one.logit:
            data[j] = data[j - 1]
            j -= 1
        data[j] = one


cdef void fake_sort_front(llamad_candidate *data, int32_t n, int32_t k) noexcept nogil:
    fake_sort(data, n)


cdef void fake_order(const float *scores, int32_t *order, int32_t n) noexcept nogil:
    cdef int32_t i, j, one
    for i in range(1, n):
        one = order[i]
        j = i
        while j > 0 and scores[order[j - 1]] > scores[one]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = one
