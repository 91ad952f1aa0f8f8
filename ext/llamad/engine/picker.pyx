# Owns: one sampler in the hand of a test or a measurement. The engine does not use it.
from libc.stdint cimport int32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from cpython.bytes cimport PyBytes_AS_STRING

from llamad.engine.sampler cimport Sampler, sampler_accept, sampler_close, sampler_open, sampler_pick, sampler_scratch_bytes
from llamad.engine.sampling cimport Sampling
from llamad.engine.table cimport llamad_bias
from llamad.engine.vocab cimport Vocab


cdef class Picker:
    """One sampler in the hand: ours, or llama.cpp's with `ours=False`."""
    cdef Sampler *sampler
    cdef void *scratch
    cdef Vocab vocab

    def __cinit__(self, vocab: Vocab, sampling: Sampling, n_vocab: int, *, bias: list[tuple[int, float]],
                  breakers: list[bytes], ours: bool) -> None:
        cdef llamad_bias *rows = <llamad_bias *>calloc(<size_t>len(bias) + 1, sizeof(llamad_bias))
        cdef int32_t i
        for i in range(<int32_t>len(bias)):
            rows[i].token = bias[i][0]
            rows[i].bias = bias[i][1]
        joined = b"".join([breaker + b"\0" for breaker in breakers])
        self.vocab = vocab
        self.sampler = sampler_open(vocab.table, vocab.handle, n_vocab, &sampling.values, rows, <int32_t>len(bias),
                                    PyBytes_AS_STRING(joined), <int32_t>len(breakers), ours)
        free(rows)
        self.scratch = malloc(sampler_scratch_bytes(n_vocab))
        if self.sampler == NULL or self.scratch == NULL:
            raise MemoryError()

    def __dealloc__(self) -> None:
        sampler_close(self.sampler)
        free(self.scratch)

    @property
    def is_ours(self) -> bool:
        return self.sampler.chain == NULL

    def accept(self, token: int) -> None:
        sampler_accept(self.sampler, token)

    def pick(self, float[::1] logits) -> int:
        """Picks and accepts. The logits may be changed."""
        assert logits.shape[0] == self.sampler.n_vocab
        cdef int32_t token
        with nogil:
            token = sampler_pick(self.sampler, &logits[0], self.scratch)
        return token

    def repeat(self, float[::1] logits, n: int) -> None:
        """Picks n times from copies of one row, for timing: llama.cpp's chain copies its row, too."""
        cdef int32_t i, n_times = n
        cdef size_t n_bytes = <size_t>self.sampler.n_vocab * sizeof(float)
        cdef float *row = <float *>malloc(n_bytes)
        with nogil:
            for i in range(n_times):
                if self.sampler.n_bias or self.sampler.history.counts != NULL or i == 0:
                    memcpy(row, &logits[0], n_bytes)
                sampler_pick(self.sampler, row, self.scratch)
        free(row)
