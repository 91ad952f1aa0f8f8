# Owns: a context, real or fake, whose memory a test drives through the function table. Runs on the calling thread. The
# engine does not use it.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int8_t, int32_t, uint8_t, uintptr_t
from libc.stdlib cimport calloc, free

from llamad.base.function_table cimport llamad_batch, llamad_table


cdef class MemoryDriver:
    """The memory functions of the table, for Python."""
    cdef const llamad_table *table
    cdef void *ctx
    cdef llamad_batch batch
    cdef int32_t *seqs
    cdef int32_t n_batch

    def __cinit__(self, table: int, ctx: int, n_batch: int) -> None:
        self.table = <const llamad_table *><uintptr_t>table
        self.ctx = <void *><uintptr_t>ctx
        self.n_batch = n_batch
        self.seqs = <int32_t *>calloc(<size_t>n_batch, sizeof(int32_t))
        self.batch.token = <int32_t *>calloc(<size_t>n_batch, sizeof(int32_t))
        self.batch.pos = <int32_t *>calloc(<size_t>n_batch, sizeof(int32_t))
        self.batch.n_seq_id = <int32_t *>calloc(<size_t>n_batch, sizeof(int32_t))
        self.batch.seq_id = <int32_t **>calloc(<size_t>n_batch, sizeof(void *))
        self.batch.output = <int8_t *>calloc(<size_t>n_batch, sizeof(int8_t))

    def __dealloc__(self) -> None:
        free(self.seqs)
        free(self.batch.token)
        free(self.batch.pos)
        free(self.batch.n_seq_id)
        free(self.batch.seq_id)
        free(self.batch.output)

    def decode(self, tokens: list[tuple[int, int, int]]) -> int:
        """Decode a batch of (sequence, position, token). Its last token has an output."""
        assert 0 < len(tokens) <= self.n_batch
        for i, (seq, pos, token) in enumerate(tokens):
            self.seqs[i] = seq
            self.batch.seq_id[i] = &self.seqs[i]
            self.batch.n_seq_id[i] = 1
            self.batch.pos[i] = pos
            self.batch.token[i] = token
            self.batch.output[i] = i + 1 == len(tokens)
        self.batch.n_tokens = <int32_t>len(tokens)
        return self.table.decode(self.ctx, &self.batch)

    def logits(self, n_vocab: int) -> list[float]:
        """Return the row of the last decode's output."""
        cdef float *row = self.table.logits(self.ctx, self.batch.n_tokens - 1)
        if row == NULL:
            raise ValueError("the last decode has no output")
        return [row[i] for i in range(n_vocab)]

    def seq_rm(self, seq: int, p0: int, p1: int) -> bool:
        return self.table.seq_rm(self.ctx, seq, p0, p1) == 1

    def seq_cp(self, src: int, dst: int, p0: int = -1, p1: int = -1) -> None:
        self.table.seq_cp(self.ctx, src, dst, p0, p1)

    def seq_add(self, seq: int, p0: int, p1: int, delta: int) -> None:
        self.table.seq_add(self.ctx, seq, p0, p1, delta)

    def pos_min(self, seq: int) -> int:
        return self.table.seq_pos_min(self.ctx, seq)

    def can_shift(self) -> bool:
        return self.table.can_shift(self.ctx) != 0

    def save(self, seq: int, flags: int) -> bytes:
        cdef size_t n = self.table.state_size(self.ctx, seq, flags)
        data = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>n)
        if self.table.state_get(self.ctx, seq, <uint8_t *>PyBytes_AS_STRING(data), n, flags) != n:
            raise ValueError("the state cannot be saved")
        return data

    def restore(self, seq: int, data: bytes, flags: int) -> bool:
        cdef size_t n = <size_t>PyBytes_GET_SIZE(data)
        return self.table.state_set(self.ctx, seq, <const uint8_t *>PyBytes_AS_STRING(data), n, flags) == n
