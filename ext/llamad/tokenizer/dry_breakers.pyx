# Owns: the conversion of DRY's sequence breakers to the table in which the engine looks tokens up. Runs on a worker,
# without the GIL, because it looks at every token of the vocabulary; touches nothing but the vocabulary.
#
# The table consists of int32s: the number of heads; the heads, rising; for each head the index of its tails; then the
# tails: a count, and for each a length and its tokens. A head is a token whose text contains a breaker, or ends with
# the beginning of one; a tail is the rest of that breaker, tokenized. Heads with the same tails share them.
from libc.stdint cimport int32_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp, memcpy

from cpython.bytes cimport PyBytes_AS_STRING

from llamad.base.function_table cimport llamad_table
from llamad.tokenizer.vocab cimport Vocab

cdef enum:
    BREAKERS_MAX = 64
    BREAKER_BYTES = 40                   # llama.cpp uses no more bytes of a breaker
    TAIL_TOKENS = 20                     # nor more tokens of a tail
    REST_TOKENS = 256                    # room for a tail before it is cut
    WORD_BYTES = 1024                    # a longer token cannot be a head
    RECORD_MAX = 1 + BREAKERS_MAX * BREAKER_BYTES * (1 + TAIL_TOKENS)
    TAILS_MAX = 1 << 17                  # int32s in the tails of all heads
    HEAD_TAILS_MAX = 64                  # tails of one head: each is tried wherever the head occurs in the history
    N_INDEX = 1 << 14

ctypedef struct Breaker:
    int32_t n
    char text[BREAKER_BYTES]
    int32_t n_rest[BREAKER_BYTES]        # number of tokens from each byte on, plus 1; 0: not tokenized yet
    int32_t rest[BREAKER_BYTES][TAIL_TOKENS]

ctypedef struct Packing:
    const llamad_table *table
    const void *vocab
    int32_t n_breakers
    Breaker breakers[BREAKERS_MAX]
    int32_t n_heads
    int32_t *heads
    int32_t *at                          # index of each head's record in `tails`
    int32_t n_tails
    int32_t tails[TAILS_MAX]
    int32_t record[RECORD_MAX]           # the tails of one head
    int32_t n_record
    int32_t n_kinds
    int32_t index[N_INDEX]               # hash table: the index of each different record in `tails`, plus 1


cdef const int32_t *_rest(Packing *pack, Breaker *breaker, int32_t from_byte) noexcept nogil:
    """Return the tokens of a breaker's text from this byte on."""
    cdef int32_t tokens[REST_TOKENS]
    cdef int32_t n
    if breaker.n_rest[from_byte] == 0:
        n = pack.table.tokenize(pack.vocab, breaker.text + from_byte, breaker.n - from_byte, tokens, REST_TOKENS, 0, 0,
                                NULL)
        n = max(0, min(n, <int32_t>TAIL_TOKENS))
        memcpy(breaker.rest[from_byte], tokens, <size_t>n * sizeof(int32_t))
        breaker.n_rest[from_byte] = n + 1
    return breaker.rest[from_byte]


cdef void _add_tail(Packing *pack, const int32_t *tail, int32_t n) noexcept nogil:
    """Add a tail to the record, unless it is there already."""
    cdef int32_t *other = pack.record + 1
    cdef int32_t _
    for _ in range(pack.record[0]):
        if other[0] == n and memcmp(other + 1, tail, <size_t>n * sizeof(int32_t)) == 0:
            return
        other += 1 + other[0]
    other[0] = n
    if n > 0:
        memcpy(other + 1, tail, <size_t>n * sizeof(int32_t))
    pack.record[0] += 1
    pack.n_record += 1 + n


cdef void _match(Packing *pack, Breaker *breaker, const char *word, int32_t n_word) noexcept nogil:
    """Add the rest of the breaker for every place where the word ends with the breaker's beginning."""
    cdef int32_t at, n
    cdef const char *first
    for at in range(n_word - breaker.n + 1):
        if memcmp(word + at, breaker.text, <size_t>breaker.n) == 0:
            _add_tail(pack, NULL, 0)
            return
    at = 0
    while at < n_word:
        first = <const char *>memchr(word + at, breaker.text[0], <size_t>(n_word - at))
        if first == NULL:
            return
        at = <int32_t>(first - word)
        n = n_word - at
        if n < breaker.n and memcmp(word + at, breaker.text, <size_t>n) == 0:
            _rest(pack, breaker, n)
            _add_tail(pack, breaker.rest[n], breaker.n_rest[n] - 1)
        at += 1


cdef int32_t _keep_record(Packing *pack) noexcept nogil:
    """Return the index of the record, which many heads may share; -1 if there are too many different records."""
    cdef uint32_t hash = 2166136261
    cdef int32_t i
    cdef size_t n_bytes = <size_t>pack.n_record * sizeof(int32_t)
    for i in range(pack.n_record):
        hash = (hash ^ <uint32_t>pack.record[i]) * <uint32_t>16777619
    hash ^= hash >> 15
    while True:
        i = pack.index[hash % N_INDEX] - 1
        if i < 0:
            break
        # Equal bytes mean equal records, because the first numbers of a record determine its length.
        if memcmp(pack.tails + i, pack.record, n_bytes) == 0:
            return i
        hash += 1
    if pack.n_tails + pack.n_record > TAILS_MAX - RECORD_MAX or pack.n_kinds > N_INDEX // 2:
        return -1
    pack.n_kinds += 1
    i = pack.n_tails
    memcpy(pack.tails + i, pack.record, n_bytes)
    pack.index[hash % N_INDEX] = i + 1
    pack.n_tails += pack.n_record
    return i


cdef int _scan(Packing *pack, int32_t n_vocab) noexcept nogil:
    """Add every token of the vocabulary that is a head. Return 0, or -1 if the table would be too large."""
    cdef char word[WORD_BYTES]
    cdef int32_t token, n, i
    for token in range(n_vocab):
        n = pack.table.detokenize(pack.vocab, &token, 1, word, WORD_BYTES, 0, 1)
        if n <= 0:
            continue
        pack.record[0] = 0
        pack.n_record = 1
        for i in range(pack.n_breakers):
            _match(pack, &pack.breakers[i], word, n)
        if pack.record[0] == 0:
            continue
        if pack.record[0] > HEAD_TAILS_MAX:
            return -1
        i = _keep_record(pack)
        if i < 0:
            return -1
        pack.heads[pack.n_heads] = token
        pack.at[pack.n_heads] = i
        pack.n_heads += 1
    return 0


def pack_breakers(vocab: Vocab, breakers: list[bytes]) -> bytes:
    """Return the table of at most 64 breakers. Raises ValueError if they have too many different tails."""
    cdef Packing *pack
    cdef int32_t i, n_vocab = vocab.n_vocab, failed
    if len(breakers) > BREAKERS_MAX:
        raise ValueError(f"at most {BREAKERS_MAX} breakers")
    pack = <Packing *>calloc(1, sizeof(Packing))
    if pack == NULL:
        raise MemoryError()
    try:
        pack.table = vocab.table
        pack.vocab = vocab.handle
        pack.heads = <int32_t *>calloc(<size_t>n_vocab, sizeof(int32_t))
        pack.at = <int32_t *>calloc(<size_t>n_vocab, sizeof(int32_t))
        if pack.heads == NULL or pack.at == NULL:
            raise MemoryError()
        for breaker in breakers:
            if breaker:
                i = pack.n_breakers
                pack.breakers[i].n = <int32_t>min(len(breaker), BREAKER_BYTES)
                memcpy(pack.breakers[i].text, PyBytes_AS_STRING(breaker), <size_t>pack.breakers[i].n)
                pack.n_breakers += 1
        with nogil:
            failed = _scan(pack, n_vocab)
        if failed:
            raise ValueError("the breakers have too many different beginnings in this vocabulary")
        for i in range(pack.n_heads):
            pack.at[i] += 1 + 2 * pack.n_heads
        return ((<char *>&pack.n_heads)[:4] + (<char *>pack.heads)[:4 * pack.n_heads]
                + (<char *>pack.at)[:4 * pack.n_heads] + (<char *>pack.tails)[:4 * pack.n_tails])
    finally:
        free(pack.heads)
        free(pack.at)
        free(pack)
