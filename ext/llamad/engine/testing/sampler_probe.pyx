# Owns: one sampler for tests and benchmarks, and parts of it that are tested alone. The engine does not use it.
from libc.stdint cimport int32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from llamad.tokenizer.dry_breakers import pack_breakers

from llamad.engine.sampler.exact_math cimport exps, sum_in_order, sum_of_squares
from llamad.engine.threads.logits_arrival cimport arrival_await, arrival_fill_sentinels
from llamad.engine.sampler.logits_row cimport row_maxima
from llamad.engine.sampler.sampler cimport (
    Sampler, sampler_accept, sampler_candidates, sampler_close, sampler_mark, sampler_open, sampler_open_chain,
    sampler_return_to, sampler_sample, sampler_scratch_bytes,
)
from llamad.protocol.messages cimport SamplerMark
from llamad.protocol.sampling_params cimport Sampling
from llamad.base.function_table cimport llamad_bias, llamad_candidate
from llamad.tokenizer.vocab cimport Vocab


cdef class SamplerProbe:
    """One sampler: llamad's, or llama.cpp's with `ours=False`."""
    cdef Sampler *sampler
    cdef void *scratch
    cdef Vocab vocab

    def __cinit__(self, vocab: Vocab, sampling: Sampling, n_vocab: int, *, bias: list[tuple[int, float]],
                  breakers: list[bytes], ours: bool, packed: bytes | None = None) -> None:
        cdef llamad_bias *rows = <llamad_bias *>calloc(<size_t>len(bias) + 1, sizeof(llamad_bias))
        cdef int32_t i
        for i in range(<int32_t>len(bias)):
            rows[i].token = bias[i][0]
            rows[i].bias = bias[i][1]
        self.vocab = vocab
        if ours:
            packed = pack_breakers(vocab, breakers) if packed is None else packed
            self.sampler = sampler_open(vocab.table, vocab.handle, n_vocab, &sampling.values, rows, <int32_t>len(bias),
                                        <const int32_t *>PyBytes_AS_STRING(packed),
                                        <int32_t>(PyBytes_GET_SIZE(packed) // 4))
        else:
            joined = b"".join([breaker + b"\0" for breaker in breakers])
            self.sampler = sampler_open_chain(vocab.table, vocab.handle, n_vocab, &sampling.values, rows,
                                              <int32_t>len(bias), PyBytes_AS_STRING(joined), <int32_t>len(breakers))
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

    def mark(self) -> bytes:
        """Return what another sampler needs to go on, beside the tokens that this one has accepted."""
        cdef SamplerMark mark
        memset(&mark, 0, sizeof(SamplerMark))
        sampler_mark(self.sampler, &mark)
        return (<char *>&mark)[:sizeof(SamplerMark)]

    def return_to(self, mark: bytes, n_tokens: int) -> bool:
        """Go on from a mark that was made after n_tokens; return False if it is not one of such a sampler."""
        assert PyBytes_GET_SIZE(mark) == sizeof(SamplerMark)
        return sampler_return_to(self.sampler, <const SamplerMark *>PyBytes_AS_STRING(mark), n_tokens) == 0

    def sample(self, float[::1] logits, arrived: bool = False, keeps: bool = True) -> int:
        """Sample without accepting. The logits are unchanged. `arrived` means that their maxima are known already.
        candidates() needs `keeps`."""
        self.sampler.keeps_candidates = keeps
        assert logits.shape[0] == self.sampler.n_vocab
        cdef int32_t token, is_over = 0, n = <int32_t>logits.shape[0]
        if arrived:
            self.sampler.has_maxima = arrival_await(&logits[0], n, row_maxima(self.scratch, n), &is_over, 0)
        with nogil:
            token = sampler_sample(self.sampler, &logits[0], self.scratch)
        return token

    def candidates(self) -> bytes:
        """Return the candidates of the last draw, most probable first, as structs (int32 id, float logit, float p)."""
        cdef llamad_candidate *data
        cdef int32_t n
        with nogil:
            sampler_candidates(self.sampler, &data, &n)
        return PyBytes_FromStringAndSize(<char *>data, n * <Py_ssize_t>sizeof(llamad_candidate))

    def repeat(self, float[::1] logits, n: int) -> None:
        """Sample n times from one row and accept each token, for timing."""
        cdef int32_t _, token, n_times = n
        with nogil:
            for _ in range(n_times):
                token = sampler_sample(self.sampler, &logits[0], self.scratch)
                sampler_accept(self.sampler, token)


def row_exps(float[::1] row, largest: float, float[::1] out) -> None:
    """Call exps() of exact_math.pyx, for a test."""
    assert row.shape[0] == out.shape[0]
    exps(&row[0], <int32_t>row.shape[0], largest, &out[0])


def row_sum(float[::1] row) -> float:
    """Return sum_in_order() of exact_math.pyx, for a test."""
    return sum_in_order(&row[0], <int32_t>row.shape[0])


def row_squares(float[::1] row, mean: float) -> float:
    """Return sum_of_squares() of exact_math.pyx, for a test."""
    return sum_of_squares(&row[0], <int32_t>row.shape[0], mean)


def row_fill_sentinels(float[::1] row) -> None:
    """Call arrival_fill_sentinels() of logits_arrival.h, for a test."""
    arrival_fill_sentinels(&row[0], <int32_t>row.shape[0])


def row_await(const float[::1] row, const int32_t[::1] is_over, float[::1] maxima) -> bool:
    """Call arrival_await() of logits_arrival.h without patience, for a test. Others may write to the row meanwhile."""
    cdef int32_t n = <int32_t>row.shape[0]
    cdef int has_maxima
    assert maxima.shape[0] >= n // 256 * 16
    with nogil:
        has_maxima = arrival_await(&row[0], n, &maxima[0], &is_over[0], 0)
    return has_maxima != 0
