# Owns: a drafter of any quality, for a fake model with `chaos`. It knows what that model would answer.
from libc.stdint cimport int32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free

from llamad.engine.drafts.drafts cimport Drafter
from llamad.engine.kv.slots cimport Slot
from llamad.engine.testing.fake_decode cimport chaos_answer
from llamad.engine.testing.fake_model cimport FAKE_VOCAB, FakeModel

ctypedef struct Guesses:
    const FakeModel *model
    double share             # of its tokens that are the model's most likely ones
    int32_t n_most
    uint64_t random
    uint64_t n_asked


cdef double _next_random(Guesses *drafter) noexcept nogil:
    drafter.random = drafter.random * 6364136223846793005ull + 1442695040888963407ull
    return <double>(drafter.random >> 40) / (1 << 24)


cdef int32_t _draft(void *arg, const Slot *slot, int32_t n, int32_t *draft, int32_t n_max) noexcept nogil:
    cdef Guesses *drafter = <Guesses *>arg
    cdef int32_t i, token = slot.tokens[n - 1], n_draft = min(n_max, drafter.n_most)
    drafter.n_asked += 1
    n_draft = <int32_t>(_next_random(drafter) * (n_draft + 1))
    for i in range(n_draft):
        token = chaos_answer(drafter.model, token, n - 1 + i)
        if _next_random(drafter) >= drafter.share:
            token = <int32_t>(_next_random(drafter) * FAKE_VOCAB)
        draft[i] = token
    return n_draft


cdef class FakeDrafter(Drafter):
    """Drafts up to n_most tokens, a share of them as the model would answer if it took the most likely token."""
    cdef Guesses *guesses

    def __cinit__(self, model: int, *, share: float, n_most: int = 63, seed: int = 1) -> None:
        self.guesses = <Guesses *>calloc(1, sizeof(Guesses))
        if self.guesses == NULL:
            raise MemoryError()
        self.guesses.model = <const FakeModel *><uintptr_t>model
        self.guesses.share = share
        self.guesses.n_most = n_most
        self.guesses.random = seed
        self.fn = _draft
        self.arg = self.guesses

    def __dealloc__(self) -> None:
        free(self.guesses)

    @property
    def n_asked(self) -> int:
        """How often it was asked for a draft."""
        return self.guesses.n_asked
