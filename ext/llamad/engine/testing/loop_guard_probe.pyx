# Owns: a loop guard without an engine, for tests and benchmarks.
from libc.stdint cimport int32_t

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from llamad.tokenizer.loop_guard cimport (
    LoopGuard, loop_guard_add, loop_guard_begin, loop_guard_free, loop_guard_init, loop_guard_nearness,
)
from llamad.tokenizer.vocab cimport Pieces, Vocab


cdef class LoopGuardProbe:
    """A loop guard for texts of one vocabulary."""
    cdef LoopGuard guard
    cdef Vocab vocab

    def __cinit__(self, vocab: Vocab) -> None:
        self.vocab = vocab
        if loop_guard_init(&self.guard) < 0:
            raise MemoryError()

    def __dealloc__(self) -> None:
        loop_guard_free(&self.guard)

    def read(self, bytes tokens) -> tuple[int, float]:
        """Return after how many of the tokens the text ends, -1 if it does not, and how near it came to that: from 0
        to 1."""
        cdef const int32_t *ids = <const int32_t *>PyBytes_AS_STRING(tokens)
        cdef int32_t i, n = <int32_t>(PyBytes_GET_SIZE(tokens) // 4)
        cdef const Pieces *pieces = &self.vocab.pieces
        cdef float nearest = 0
        cdef int is_over
        loop_guard_begin(&self.guard)
        for i in range(n):
            is_over = loop_guard_add(&self.guard, ids[i], pieces.bytes + pieces.offsets[ids[i]],
                                     <int32_t>(pieces.offsets[ids[i] + 1] - pieces.offsets[ids[i]]))
            nearest = max(nearest, loop_guard_nearness(&self.guard))
            if is_over:
                return i + 1, nearest
        return -1, nearest
