# Owns: tokenizing, and the pieces of tokens. Immutable after construction, so any thread may call it; long texts
# release the GIL. Setting a Cancel ends what a thread tokenizes within it. Token ids are checked here, because
# llama.cpp trusts them.
import threading

from libc.stdint cimport INT32_MIN, int32_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc, realloc

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from llamad.base.function_table cimport (
    LLAMAD_TABLE_VERSION, LLAMAD_TOKENIZE_STOPPED, LLAMAD_TOKENIZE_TOO_MANY, llamad_table, llamad_tokenize_limits,
)

cdef enum:
    TEXT_MAX = 1 << 30   # llama.cpp's lengths are int32


_thread = threading.local()


class Cancelled(Exception):
    """Nobody needs the tokens any more."""


class CannotTokenize(ValueError):
    """A text that llama.cpp refuses, or that would take it too long."""


class TooManyTokens(Exception):
    """The text has more tokens than it may have."""


cdef class Cancel:
    """`with cancel:` applies to the texts that this thread tokenizes in the block; any thread may call set()."""

    def set(self) -> None:
        self.is_set = 1

    def __enter__(self) -> Cancel:
        _thread.cancel = self
        return self

    def __exit__(self, *_) -> None:
        _thread.cancel = None


cdef class Vocab:
    def __cinit__(self, table: int, handle: int, n_vocab: int, special: bool = False, owner: object = None) -> None:
        """`owner` is the object that the handle belongs to; it is kept alive."""
        self.owner = owner
        self.table = <const llamad_table *><uintptr_t>table
        self.handle = <const void *><uintptr_t>handle
        self.n_vocab = n_vocab
        if self.table.version != LLAMAD_TABLE_VERSION or self.table.size != sizeof(llamad_table):
            raise RuntimeError("llamad's compiled modules do not fit together: run 'make clean build'")
        self.pieces.is_eog = <uint8_t *>calloc(self.n_vocab + 1, 1)
        if self.pieces.is_eog == NULL:
            raise MemoryError()
        cdef int32_t token
        for token in range(self.n_vocab):
            self.pieces.is_eog[token] = self.table.is_eog(self.handle, token) != 0
        self._fill(&self.pieces, special, frozenset())
        self._measure()

    def __dealloc__(self) -> None:
        free(self.pieces.bytes)
        free(self.pieces.offsets)
        free(self.pieces.is_eog)
        free(self.marked.bytes)
        free(self.marked.offsets)

    cdef int _fill(self, Pieces *pieces, bint special, frozenset markers) except -1:
        """Fill in what each token adds to a generated text. Special tokens are empty, unless they shall be visible."""
        cdef uint64_t n_used = 0, n_max = <uint64_t>self.n_vocab * 8 + 4096
        cdef int32_t token, n, is_seen
        cdef void *more
        pieces.n_vocab = self.n_vocab
        pieces.offsets = <uint32_t *>calloc(self.n_vocab + 1, sizeof(uint32_t))
        pieces.bytes = <char *>malloc(n_max)
        if pieces.offsets == NULL or pieces.bytes == NULL:
            raise MemoryError()
        for token in range(self.n_vocab):
            is_seen = special or (bool(markers) and token in markers)
            n = self.table.piece(self.handle, token, pieces.bytes + n_used, <int32_t>(n_max - n_used), is_seen)
            if n < 0 and n != INT32_MIN:
                n_max = n_max * 2 + <uint64_t>(-n)
                more = realloc(pieces.bytes, n_max)
                if more == NULL:
                    raise MemoryError()
                pieces.bytes = <char *>more
                n = self.table.piece(self.handle, token, pieces.bytes + n_used, <int32_t>(n_max - n_used), is_seen)
            n_used += <uint64_t>max(n, 0)
            pieces.offsets[token + 1] = <uint32_t>n_used
        return 0

    cdef int _measure(self) except -1:
        cdef char small[256]
        cdef int32_t token, n
        self.n_token_bytes = 1
        for token in range(self.n_vocab):
            n = self.table.piece(self.handle, token, small, sizeof(small), 1)
            if n != INT32_MIN:
                self.n_token_bytes = max(self.n_token_bytes, n if n >= 0 else -n)
        return 0

    def show_markers(self, texts: list[str]) -> None:
        """Make special tokens with these texts visible to tasks that ask for markers. Call once, before any task."""
        assert self.marked.bytes == NULL, "markers are set once"
        markers = set()
        for text in texts:
            tokens = memoryview(self.tokenize(text.encode(), False, True)).cast("i")
            if len(tokens) == 1 and self.piece(tokens[0], False) == b"":
                markers.add(tokens[0])
        if markers:
            self._fill(&self.marked, False, frozenset(markers))
            self.marked.is_eog = self.pieces.is_eog

    def tokenize(self, text: bytes, add_special: bool, parse_special: bool, n_tokens_max: int = 0) -> bytes:
        """Return the token ids as int32s in bytes: they are passed on without becoming Python ints.

        Raises CannotTokenize, Cancelled, and TooManyTokens if it notices in time that there are more than
        n_tokens_max."""
        cdef Py_ssize_t n_text = PyBytes_GET_SIZE(text)
        cdef const char *chars = PyBytes_AS_STRING(text)
        cdef int32_t special = add_special, parse = parse_special, n, n_max
        cdef int32_t *tokens
        cdef Cancel cancel = getattr(_thread, "cancel", None)
        cdef llamad_tokenize_limits limits
        limits.is_stopped = NULL if cancel is None else &cancel.is_set
        limits.n_tokens_max = n_tokens_max
        if n_text > TEXT_MAX:
            raise ValueError("the text is too long to tokenize")
        n_max = <int32_t>n_text + 8
        while True:
            tokens = <int32_t *>malloc(<size_t>n_max * sizeof(int32_t))
            if tokens == NULL:
                raise MemoryError()
            try:
                with nogil:
                    n = self.table.tokenize(self.handle, chars, <int32_t>n_text, tokens, n_max, special, parse, &limits)
                if n >= 0:
                    return PyBytes_FromStringAndSize(<char *>tokens, n * <Py_ssize_t>sizeof(int32_t))
            finally:
                free(tokens)
            if n == LLAMAD_TOKENIZE_STOPPED:
                raise Cancelled
            if n == LLAMAD_TOKENIZE_TOO_MANY:
                raise TooManyTokens
            if n == INT32_MIN:
                raise CannotTokenize("the text could not be tokenized: it has a word that is too long, or is not UTF-8")
            n_max = -n

    def detokenize(self, tokens: bytes, unparse_special: bool) -> bytes:
        """Return the text of token ids, which are int32s in bytes. Raises ValueError for an invalid id."""
        cdef int32_t n_tokens = <int32_t>(PyBytes_GET_SIZE(tokens) // 4)
        cdef const int32_t *ids = <const int32_t *>PyBytes_AS_STRING(tokens)
        cdef int32_t special = unparse_special, n, n_max = n_tokens * 8 + 64
        cdef char *text
        self.check(tokens)
        while True:
            text = <char *>malloc(<size_t>n_max)
            if text == NULL:
                raise MemoryError()
            try:
                with nogil:
                    n = self.table.detokenize(self.handle, ids, n_tokens, text, n_max, 0, special)
                if n >= 0:
                    return PyBytes_FromStringAndSize(text, n)
            finally:
                free(text)
            if n == INT32_MIN:
                raise ValueError("the tokens could not be turned into text")
            n_max = -n

    def pieces_of(self, tokens: bytes) -> bytes:
        """Return the concatenated pieces of token ids (int32s in bytes), including special tokens. detokenize() is the
        inverse of tokenize() and drops the space that tokenize() puts before a text; here it stays."""
        cdef Py_ssize_t n_tokens = PyBytes_GET_SIZE(tokens) // 4, i, n_used = 0
        cdef const int32_t *ids = <const int32_t *>PyBytes_AS_STRING(tokens)
        cdef Py_ssize_t n_max = n_tokens * 8 + self.n_token_bytes
        cdef int32_t n
        cdef char *text
        cdef void *more
        self.check(tokens)
        more = text = <char *>malloc(<size_t>n_max)
        if text == NULL:
            raise MemoryError()
        try:
            with nogil:
                for i in range(n_tokens):
                    if n_max - n_used < self.n_token_bytes:
                        n_max = 2 * n_max + self.n_token_bytes
                        more = realloc(text, <size_t>n_max)
                        if more == NULL:
                            break
                        text = <char *>more
                    n = self.table.piece(self.handle, ids[i], text + n_used, self.n_token_bytes, 1)
                    n_used += max(n, 0)
            if more == NULL:
                raise MemoryError()
            return PyBytes_FromStringAndSize(text, n_used)
        finally:
            free(text)

    def output(self, token: int) -> bytes:
        """Return what the token adds to a generated text."""
        cdef int32_t id = token
        if not 0 <= id < self.n_vocab:
            return b""
        return self.pieces.bytes[self.pieces.offsets[id]:self.pieces.offsets[id + 1]]

    def marked_output(self, token: int) -> bytes:
        """Return what the token adds to the text of a task that asks for markers."""
        cdef int32_t id = token
        if self.marked.bytes == NULL or not 0 <= id < self.n_vocab:
            return self.output(token)
        return self.marked.bytes[self.marked.offsets[id]:self.marked.offsets[id + 1]]

    def piece(self, token: int, special: bool) -> bytes:
        """Return the bytes of one token."""
        cdef char small[256]
        cdef int32_t id = token, n
        if not 0 <= id < self.n_vocab:
            raise ValueError(f"token id {token} is outside the vocabulary of {self.n_vocab}")
        n = self.table.piece(self.handle, id, small, sizeof(small), special)
        if n >= 0:
            return small[:n]
        if n == INT32_MIN:
            return b""
        buffer = bytearray(-n)
        cdef char[::1] view = buffer
        self.table.piece(self.handle, id, &view[0], -n, special)
        return bytes(buffer)

    def check(self, tokens: bytes) -> None:
        """Raise ValueError unless every id is inside the vocabulary."""
        cdef const int32_t *ids = <const int32_t *>PyBytes_AS_STRING(tokens)
        cdef Py_ssize_t i, n = PyBytes_GET_SIZE(tokens) // 4
        for i in range(n):
            if not 0 <= ids[i] < self.n_vocab:
                raise ValueError(f"token id {ids[i]} is outside the vocabulary of {self.n_vocab}")

    def is_eog(self, token: int) -> bool:
        """Return whether generation ends at this token."""
        return 0 <= token < self.n_vocab and self.pieces.is_eog[token] != 0

    def eog_tokens(self) -> list[int]:
        """Return all tokens that end a generation."""
        return [i for i in range(self.n_vocab) if self.pieces.is_eog[i]]
