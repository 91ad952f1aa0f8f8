# distutils: language = c++
# distutils: sources = ext/llamad/ses1/*.cpp
# Owns: saved states as Python sees them: checks them, cuts and joins them, and converts them to files and base64. Every
# call releases the GIL and belongs on a worker thread. Must not touch the engine or llama.cpp.
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from llamad.protocol.blobs cimport Arena, Blob

cdef extern from "llamad/ses1/state.h" nogil:
    ctypedef struct llamad_state_error:
        char reason[256]
    int32_t LLAMAD_STATE_E_MEMORY
    llamad_layout *llamad_layout_learn(const uint8_t *one, size_t n_one, const uint8_t *two, size_t n_two,
                                       uint32_t n_window, llamad_state_error *error)
    void llamad_layout_close(llamad_layout *layout)
    size_t llamad_layout_bytes(const llamad_layout *layout, uint32_t n_tokens)
    size_t llamad_layout_bytes_max(const llamad_layout *layout, uint32_t n_tokens)
    uint64_t llamad_layout_row_unit(const llamad_layout *layout)
    int32_t llamad_state_check(const llamad_layout *layout, const uint8_t *data, size_t n, uint32_t n_vocab,
                               uint32_t n_ctx, uint32_t *n_tokens, size_t *n_bytes, llamad_state_error *error)
    int32_t llamad_segment_check(const llamad_layout *layout, const uint8_t *data, size_t n, uint32_t n_vocab,
                                 uint32_t n_ctx, uint32_t begin, uint32_t n_tokens, llamad_state_error *error)
    int32_t llamad_end_check(const llamad_layout *layout, const uint8_t *data, size_t n, uint32_t n_vocab,
                             uint32_t n_ctx, uint32_t n_tokens, llamad_state_error *error)
    int32_t llamad_checkpoint_check(const llamad_layout *layout, const uint8_t *data, size_t n, uint32_t n_tokens,
                                    llamad_state_error *error)
    int32_t llamad_state_rewrite(const llamad_layout *layout, const uint8_t *data, size_t n, uint8_t *out, size_t n_out)
    int64_t llamad_file_front(const uint8_t *head, size_t n, size_t n_file, uint32_t n_ctx, llamad_state_error *error)
    int64_t llamad_file_ses1_bytes(const uint8_t *front, size_t n, size_t n_file, llamad_state_error *error)
    size_t llamad_file_to_ses1(const uint8_t *front, size_t n, uint8_t *out)
    size_t llamad_base64_encode(const uint8_t *data, size_t n, char *out)
    int64_t llamad_base64_decode(const char *text, size_t n, uint8_t *out)
    int32_t llamad_json_find_state(const char *body, size_t n, size_t *begin, size_t *end, llamad_state_error *error)

cdef extern from "llamad/ses1/pieces.h" nogil:
    int32_t llamad_layout_has_cells(const llamad_layout *layout)
    int32_t llamad_layout_has_end(const llamad_layout *layout)
    int32_t llamad_layout_has_ranges(const llamad_layout *layout)
    size_t llamad_piece_bytes(const llamad_layout *layout, uint32_t n_cells)
    int64_t llamad_piece_cut(const llamad_layout *layout, llamad_piece state, int32_t p0, int32_t p1, uint8_t *out,
                             size_t n_out, llamad_state_error *error)
    int64_t llamad_piece_end(const llamad_layout *layout, llamad_piece state, uint8_t *out, size_t n_out,
                             llamad_state_error *error)
    int64_t llamad_piece_join(const llamad_layout *layout, const llamad_piece *pieces, size_t n_pieces, int32_t p1,
                              llamad_piece end, int32_t seq, uint8_t *out, size_t n_out, llamad_state_error *error)
    int64_t llamad_piece_place(const llamad_layout *layout, llamad_piece piece, int32_t p0, int32_t p1,
                               int32_t n_cells, llamad_piece end, uint8_t *out, size_t n_out, llamad_state_error *error)

cdef enum:
    HEAD = 8               # "SES1" and the number of tokens
    BLOB_HEAD = 8          # llama.cpp's own head before the memory; its files leave it out


class StateError(ValueError):
    """A state that cannot be restored here; the text says why."""


cdef str _reason(const llamad_state_error *error):
    return (<bytes>error.reason).decode("utf-8", "replace")


cdef int state_is_sound(const llamad_layout *layout, const uint8_t *data, size_t n, uint32_t n_vocab, uint32_t n_ctx,
                        uint32_t n_tokens) noexcept nogil:
    """Return whether llama.cpp can read the state as it is, and it has this many tokens. Any thread."""
    cdef llamad_state_error error
    cdef uint32_t n_own = 0
    cdef size_t n_bytes = 0
    return llamad_state_check(layout, data, n, n_vocab, n_ctx, &n_own, &n_bytes, &error) == 0 and (
        n_own == n_tokens and n_bytes == n)


cdef int segment_is_sound(const llamad_layout *layout, const uint8_t *data, size_t n, uint32_t n_vocab, uint32_t n_ctx,
                          uint32_t begin, uint32_t n_tokens) noexcept nogil:
    """Return whether llama.cpp can read the state as it is, and it has this many tokens, but cells only from position
    `begin` on. Any thread."""
    cdef llamad_state_error error
    return llamad_segment_check(layout, data, n, n_vocab, n_ctx, begin, n_tokens, &error) == 0


cdef int end_is_sound(const llamad_layout *layout, const uint8_t *data, size_t n, uint32_t n_vocab, uint32_t n_ctx,
                      uint32_t n_tokens) noexcept nogil:
    """Return whether llama.cpp can read the end of a state with this many tokens, which lie before it. Any thread."""
    cdef llamad_state_error error
    return llamad_end_check(layout, data, n, n_vocab, n_ctx, n_tokens, &error) == 0


cdef int layout_has_cells(const llamad_layout *layout) noexcept nogil:
    return llamad_layout_has_cells(layout)


cdef int layout_has_end(const llamad_layout *layout) noexcept nogil:
    return llamad_layout_has_end(layout)


cdef int layout_has_ranges(const llamad_layout *layout) noexcept nogil:
    return llamad_layout_has_ranges(layout)


cdef size_t piece_bytes(const llamad_layout *layout, uint32_t n_cells) noexcept nogil:
    return llamad_piece_bytes(layout, n_cells)


cdef int64_t piece_cut(const llamad_layout *layout, llamad_piece state, int32_t p0, int32_t p1, uint8_t *out,
                       size_t n_out) noexcept nogil:
    """Write the cells at positions p0 to p1 - 1 of a state, if there is room. Return their size, or a negative number."""
    cdef llamad_state_error error
    return llamad_piece_cut(layout, state, p0, p1, out, n_out, &error)


cdef int64_t piece_end(const llamad_layout *layout, llamad_piece state, uint8_t *out, size_t n_out) noexcept nogil:
    """Write the end of a state, if there is room. Return its size, or a negative number."""
    cdef llamad_state_error error
    return llamad_piece_end(layout, state, out, n_out, &error)


cdef int64_t piece_join(const llamad_layout *layout, const llamad_piece *pieces, size_t n_pieces, int32_t p1,
                        llamad_piece end, int32_t seq, uint8_t *out, size_t n_out) noexcept nogil:
    """Write the state that has the cells of these pieces before position p1, and this end, if there is room. Return its
    size, or a negative number."""
    cdef llamad_state_error error
    return llamad_piece_join(layout, pieces, n_pieces, p1, end, seq, out, n_out, &error)


cdef int checkpoint_is_sound(const llamad_layout *layout, const uint8_t *data, size_t n,
                             uint32_t n_tokens) noexcept nogil:
    """Return whether llama.cpp can read the checkpoint that was made after this many tokens. Any thread."""
    cdef llamad_state_error error
    return llamad_checkpoint_check(layout, data, n, n_tokens, &error) == 0


cdef class Layout:
    def __cinit__(self, one: bytes, two: bytes, n_window: int = 0) -> None:
        cdef llamad_state_error error
        self.layout = llamad_layout_learn(
            <const uint8_t *>PyBytes_AS_STRING(one), <size_t>PyBytes_GET_SIZE(one),
            <const uint8_t *>PyBytes_AS_STRING(two), <size_t>PyBytes_GET_SIZE(two), n_window, &error)
        if self.layout == NULL:
            raise StateError(_reason(&error))

    def __dealloc__(self) -> None:
        if self.layout != NULL:
            llamad_layout_close(self.layout)

    def bytes(self, n_tokens: int) -> int:
        """Return the size of the largest state with this many tokens that is saved here."""
        return llamad_layout_bytes(self.layout, n_tokens)

    def bytes_max(self, n_tokens: int) -> int:
        """Return the size of the largest state with this many tokens, saved with any number of slots."""
        return llamad_layout_bytes_max(self.layout, n_tokens)

    def row_unit(self) -> int:
        """Return the largest power of two that divides the size of each cell's rows; 0 if rows are quantized,
        transposed or empty, or if there are no cells."""
        return llamad_layout_row_unit(self.layout)

    def has_cells(self) -> bool:
        """Return whether states have cells, which can be cut into pieces; purely recurrent ones have none."""
        return llamad_layout_has_cells(self.layout) != 0

    def has_end(self) -> bool:
        """Return whether states have an end: windows or recurrent states, which belong to the last token."""
        return llamad_layout_has_end(self.layout) != 0

    def piece_bytes(self, n_cells: int) -> int:
        """Return the size of a piece with this many cells."""
        return llamad_piece_bytes(self.layout, n_cells)


def check(layout: Layout, blob: Blob, n_vocab: int, n_ctx: int, size: int | None = None) -> tuple[int, Blob]:
    """Check the state in the first `size` bytes, or in all. Return the number of its tokens, and a blob that llama.cpp
    can read: the same one, or a new one if the state was saved with another number of slots. Raises StateError."""
    cdef Layout known = layout
    cdef Blob source = blob
    cdef Blob target
    cdef uint32_t vocab = n_vocab, ctx = n_ctx, n_tokens = 0
    cdef size_t n_state = source.blob.size if size is None else min(<size_t>size, source.blob.size)
    cdef size_t n_bytes = 0
    cdef int32_t code
    cdef llamad_state_error error
    with nogil:
        code = llamad_state_check(known.layout, source.blob.data, n_state, vocab, ctx, &n_tokens, &n_bytes, &error)
    if code == LLAMAD_STATE_E_MEMORY:
        raise MemoryError(_reason(&error))
    if code != 0:
        raise StateError(_reason(&error))
    if n_bytes == n_state:
        return n_tokens, source
    target = Blob(n_bytes, source.arena)
    with nogil:
        code = llamad_state_rewrite(known.layout, source.blob.data, n_state, target.blob.data, n_bytes)
    if code == LLAMAD_STATE_E_MEMORY:
        raise MemoryError("memory ran out while a state was rewritten")
    if code != 0:
        raise StateError("it changed while it was checked")
    target.size = n_bytes
    return n_tokens, target


def check_segment(layout: Layout, blob: Blob, n_vocab: int, n_ctx: int, begin: int, n_tokens: int) -> None:
    """Check that llama.cpp can read the state, which must have so many tokens, but cells only from position `begin` on.
    Raises StateError."""
    cdef Layout known = layout
    cdef Blob source = blob
    cdef uint32_t vocab = n_vocab, ctx = n_ctx, first = begin, n = n_tokens
    cdef int32_t code
    cdef llamad_state_error error
    with nogil:
        code = llamad_segment_check(known.layout, source.blob.data, source.blob.size, vocab, ctx, first, n, &error)
    if code == LLAMAD_STATE_E_MEMORY:
        raise MemoryError(_reason(&error))
    if code != 0:
        raise StateError(_reason(&error) or "it was saved with another number of streams")


def n_tokens(blob: Blob) -> int:
    """Return the number of tokens in a state that was checked or made here."""
    cdef uint32_t n = 0
    if (<Blob>blob).blob.size < HEAD:
        raise StateError("it is shorter than its head")
    memcpy(&n, (<Blob>blob).blob.data + 4, 4)
    if (<Blob>blob).blob.size < HEAD + 4 * <size_t>n:
        raise StateError("it ends within its tokens")
    return n


def kv_offset(blob: Blob) -> int:
    """Return the offset of the memory, which follows the tokens in llama.cpp's files."""
    return HEAD + 4 * n_tokens(blob) + BLOB_HEAD


def file_head(blob: Blob) -> bytes:
    """Return the beginning of a file in llama.cpp's format; memoryview(blob)[kv_offset(blob):] must follow it."""
    cdef uint32_t head[3]
    cdef uint32_t n = n_tokens(blob)
    head[0] = 0x67677371
    head[1] = 3
    head[2] = n
    return (<const char *>head)[:12] + (<const char *>(<Blob>blob).blob.data)[HEAD:HEAD + 4 * <Py_ssize_t>n]


def file_front(head: bytes, n_file: int, n_ctx: int) -> int:
    """Return how many of a file's n_file bytes come before its memory; `head` is its first 12 bytes. The result is 0
    for SES1, which is read unchanged. Raises StateError."""
    cdef llamad_state_error error
    cdef int64_t n
    if head[:4] == b"SES1":
        return 0
    n = llamad_file_front(<const uint8_t *>PyBytes_AS_STRING(head), <size_t>PyBytes_GET_SIZE(head), n_file, n_ctx, &error)
    if n < 0:
        raise StateError(_reason(&error))
    return n


def from_front(front: bytes, n_file: int, arena: Arena | None = None) -> tuple[Blob, int]:
    """Return a blob for the state in a file, filled up to the memory, and the offset where the rest of the file
    belongs. Raises StateError."""
    cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(front)
    cdef size_t n_front = <size_t>PyBytes_GET_SIZE(front), at = 0
    cdef int64_t n = n_file
    cdef llamad_state_error error
    cdef Blob target
    if n < <int64_t>n_front:
        raise ValueError("a file cannot be shorter than its front")
    if n_front:
        n = llamad_file_ses1_bytes(data, n_front, n_file, &error)
        if n < 0:
            raise StateError(_reason(&error))
    target = Blob(n, arena)
    if n_front:
        at = llamad_file_to_ses1(data, n_front, target.blob.data)
    target.size = n
    return target, at


def encode_json(blob: Blob, head: bytes, tail: bytes) -> Blob:
    """Return one buffer with the head, the blob as base64, and the tail."""
    cdef Blob source = blob
    cdef size_t n_head = <size_t>PyBytes_GET_SIZE(head), n_tail = <size_t>PyBytes_GET_SIZE(tail)
    cdef size_t n_text = (source.blob.size + 2) // 3 * 4
    cdef Blob target = Blob(n_head + n_text + n_tail)
    memcpy(target.blob.data, PyBytes_AS_STRING(head), n_head)
    with nogil:
        llamad_base64_encode(source.blob.data, source.blob.size, <char *>target.blob.data + n_head)
    memcpy(target.blob.data + n_head + n_text, PyBytes_AS_STRING(tail), n_tail)
    target.size = target.capacity
    return target


def decode_json(const uint8_t[:] body, bytes_max: int, arena: Arena | None = None) -> Blob:
    """Return the state in {"state": "<base64>"}. Raises StateError."""
    cdef size_t begin = 0, end = 0, n = <size_t>body.shape[0]
    cdef const char *text = <const char *>&body[0] if n else NULL
    cdef int32_t code
    cdef int64_t n_state
    cdef llamad_state_error error
    cdef Blob target
    with nogil:
        code = llamad_json_find_state(text, n, &begin, &end, &error)
    if code != 0:
        raise StateError(_reason(&error))
    # An escaped slash takes two characters, so the text may be longer than the state requires.
    target = Blob((end - begin) // 4 * 3 + 3, arena)
    with nogil:
        n_state = llamad_base64_decode(text + begin, end - begin, target.blob.data)
    if n_state < 0:
        raise StateError('"state" is not base64')
    if n_state > bytes_max:
        raise StateError(f"it has {n_state} bytes, but the largest state of a slot has {bytes_max}")
    target.size = n_state
    return target


# Pieces (pieces.h). These take states as llama.cpp wrote them, without SES1's tokens before them.

cdef class _Inputs:
    """The bytes of buffers, for as long as it lives."""
    cdef llamad_piece *pieces
    cdef Py_buffer *views
    cdef size_t n

    def __cinit__(self, buffers: Sequence[Buffer]) -> None:
        self.pieces = <llamad_piece *>calloc(len(buffers) + 1, sizeof(llamad_piece))
        self.views = <Py_buffer *>calloc(len(buffers) + 1, sizeof(Py_buffer))
        if self.pieces == NULL or self.views == NULL:
            raise MemoryError("memory ran out for a list of pieces")
        for buffer in buffers:
            PyObject_GetBuffer(buffer, &self.views[self.n], PyBUF_SIMPLE)
            self.pieces[self.n].data = <const uint8_t *>self.views[self.n].buf
            self.pieces[self.n].n = <size_t>self.views[self.n].len
            self.n += 1

    def __dealloc__(self) -> None:
        cdef size_t i
        for i in range(self.n):
            PyBuffer_Release(&self.views[i])
        free(self.views)
        free(self.pieces)


cdef enum Cut:
    CUT_CELLS, CUT_END, JOIN


cdef class _Work:
    """One call of pieces.h. It runs twice: the first time it measures the result."""
    cdef Layout layout
    cdef Cut kind
    cdef _Inputs sources
    cdef _Inputs end
    cdef int32_t p0, p1, seq

    cdef int64_t _run(self, uint8_t *out, size_t n_out, llamad_state_error *error) noexcept nogil:
        if self.kind == CUT_CELLS:
            return llamad_piece_cut(self.layout.layout, self.sources.pieces[0], self.p0, self.p1, out, n_out, error)
        if self.kind == CUT_END:
            return llamad_piece_end(self.layout.layout, self.sources.pieces[0], out, n_out, error)
        return llamad_piece_join(self.layout.layout, self.sources.pieces, self.sources.n, INT32_MAX, self.end.pieces[0],
                                 self.seq, out, n_out, error)

    cdef int64_t _checked(self, uint8_t *out, size_t n_out) except -1:
        cdef int64_t n
        cdef llamad_state_error error
        with nogil:
            n = self._run(out, n_out, &error)
        if n == LLAMAD_STATE_E_MEMORY:
            raise MemoryError(_reason(&error))
        if n < 0:
            raise StateError(_reason(&error))
        return n

    cdef bytes result(self):
        cdef int64_t n = self._checked(NULL, 0)
        result = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>n)
        if self._checked(<uint8_t *>PyBytes_AS_STRING(result), <size_t>n) != n:
            raise StateError("it changed while it was read")
        return result


def cut(layout: Layout, state: Buffer, p0: int, p1: int) -> bytes:
    """Return the piece of a state with the cells at positions p0 to p1 - 1. Raises StateError."""
    cdef _Work work = _Work()
    work.layout, work.kind, work.sources, work.p0, work.p1 = layout, CUT_CELLS, _Inputs([state]), p0, p1
    return work.result()


def cut_end(layout: Layout, state: Buffer) -> bytes:
    """Return the end of a whole state, as llama.cpp writes a partial one. Raises StateError."""
    cdef _Work work = _Work()
    work.layout, work.kind, work.sources = layout, CUT_END, _Inputs([state])
    return work.result()


def join(layout: Layout, pieces: Sequence[Buffer], end: Buffer | None = None, seq: int = 0) -> bytes:
    """Return a whole state of consecutive pieces and the end of the last one, as llama.cpp writes it for the sequence
    `seq`; without an end, one larger piece. Raises StateError."""
    cdef _Work work = _Work()
    work.layout, work.kind, work.sources, work.seq = layout, JOIN, _Inputs(pieces), seq
    work.end = _Inputs([] if end is None else [end])
    return work.result()


def place(layout: Layout, piece: Buffer, p0: int, p1: int, n_cells: int, end: Buffer | None, blob: Blob,
          at: int) -> int:
    """Write a piece, which has the positions p0 to p1 - 1, to its place in join()'s result, which begins at `at` in the
    blob and has n_cells. Return the size of that result. Several threads may do so at once, each with another piece.
    Raises StateError."""
    cdef Layout known = layout
    cdef Blob target = blob
    cdef _Inputs sources = _Inputs([piece]), ends = _Inputs([] if end is None else [end])
    cdef size_t begin = at, room
    cdef int32_t first = p0, behind = p1, n_all = n_cells
    cdef int64_t n
    cdef llamad_state_error error
    if begin > target.blob.capacity:
        raise ValueError("there is nothing behind the blob's end")
    room = target.blob.capacity - begin
    with nogil:
        n = llamad_piece_place(known.layout, sources.pieces[0], first, behind, n_all, ends.pieces[0],
                               target.blob.data + begin, room, &error)
    if n == LLAMAD_STATE_E_MEMORY:
        raise MemoryError(_reason(&error))
    if n < 0:
        raise StateError(_reason(&error))
    if <size_t>n > room:
        raise StateError(f"it has {n} bytes, but there is room for {room}")
    return n
