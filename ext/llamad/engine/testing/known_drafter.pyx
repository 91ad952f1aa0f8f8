# Owns: a drafter that was told the texts beforehand, and errs as often as a test wants. For real models, whose texts
# plain decoding gives; for the fake there is fake_drafter.pyx. Runs on the engine thread.
from libc.stdint cimport int32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp

from llamad.engine.drafts.drafts cimport Drafter
from llamad.engine.kv.slots cimport Slot

ctypedef struct KnownText:
    int32_t *tokens
    int32_t n

ctypedef struct Knowledge:
    KnownText *texts
    int32_t n_texts
    int32_t n_vocab
    double share             # of its tokens that are those of the text
    uint64_t random
    uint64_t n_drafts


cdef double _next_random(Knowledge *known) noexcept nogil:
    known.random = known.random * 6364136223846793005ull + 1442695040888963407ull
    return <double>(known.random >> 40) / (1 << 24)


cdef int32_t _draft(void *arg, const Slot *slot, int32_t n, int32_t *draft, int32_t n_max) noexcept nogil:
    """Draft what follows in the first text that begins like the slot's."""
    cdef Knowledge *known = <Knowledge *>arg
    cdef const KnownText *text
    cdef int32_t i, k, n_draft
    for i in range(known.n_texts):
        text = &known.texts[i]
        if text.n <= n or memcmp(text.tokens, slot.tokens, <size_t>n * sizeof(int32_t)) != 0:
            continue
        n_draft = min(n_max, text.n - n)
        for k in range(n_draft):
            draft[k] = text.tokens[n + k]
            if _next_random(known) >= known.share:
                draft[k] = (draft[k] + 1 + <int32_t>(_next_random(known) * (known.n_vocab - 1))) % known.n_vocab
        known.n_drafts += 1
        return n_draft
    return 0


cdef class KnownDrafter(Drafter):
    """Drafts what follows in texts, which are lists of tokens. Only a `share` of the drafted tokens are right."""
    cdef Knowledge known

    def __cinit__(self, texts: list[list[int]], *, n_vocab: int, share: float, seed: int = 1) -> None:
        cdef KnownText *text
        self.known.texts = <KnownText *>calloc(max(1, <size_t>len(texts)), sizeof(KnownText))
        if self.known.texts == NULL:
            raise MemoryError()
        for tokens in texts:
            text = &self.known.texts[self.known.n_texts]
            text.tokens = <int32_t *>malloc(max(1, <size_t>len(tokens)) * sizeof(int32_t))
            if text.tokens == NULL:
                raise MemoryError()
            self.known.n_texts += 1
            for token in tokens:
                text.tokens[text.n] = token
                text.n += 1
        self.known.n_vocab = n_vocab
        self.known.share = share
        self.known.random = seed
        self.fn = _draft
        self.arg = &self.known

    def __dealloc__(self) -> None:
        cdef int32_t i
        for i in range(self.known.n_texts):
            free(self.known.texts[i].tokens)
        free(self.known.texts)

    @property
    def n_drafts(self) -> int:
        """How often it had a draft."""
        return self.known.n_drafts
