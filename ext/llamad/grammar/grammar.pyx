# distutils: language = c++
# distutils: sources = ext/llamad/grammar/*.cpp
# Owns: grammars as Python objects, and the calls that the engine makes on a task's matcher. Compiling releases the GIL
# and belongs on a worker thread; the engine side never touches Python.
from libc.stdint cimport INT32_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from llamad.base.function_table cimport llamad_table
from llamad.tokenizer.vocab cimport Vocab

cdef extern from "llamad/grammar/grammar_api.h" nogil:
    ctypedef int32_t (*llamad_find_token)(void *arg, const char *text, int32_t n) noexcept nogil
    int32_t LLAMAD_GRAMMAR_E_REFUSED
    int32_t LLAMAD_GRAMMAR_E_TOO_MUCH
    int32_t LLAMAD_GRAMMAR_E_MEMORY
    llamad_trie *llamad_trie_open(const char *bytes, const uint32_t *offsets, const uint8_t *is_eog, int32_t n_vocab)
    void llamad_trie_close(llamad_trie *trie)
    llamad_grammar *llamad_grammar_open(const char *text, size_t n, int32_t n_vocab, llamad_find_token find_token,
                                        void *arg, int64_t time_max_us, llamad_grammar_error *error)
    void llamad_grammar_drop(llamad_grammar *grammar)
    size_t llamad_grammar_bytes(llamad_grammar *grammar)
    llamad_matcher *llamad_matcher_open(llamad_grammar *grammar, const llamad_trie *trie)
    void llamad_matcher_close(llamad_matcher *matcher)
    void llamad_matcher_set_allowance(llamad_matcher *matcher, int64_t n)
    void llamad_matcher_cancel(llamad_matcher *matcher)
    int32_t llamad_matcher_may_end(llamad_matcher *matcher)
    int32_t llamad_matcher_allows(llamad_matcher *matcher, int32_t token)
    int32_t llamad_matcher_accept(llamad_matcher *matcher, int32_t token)
    int32_t llamad_matcher_feed(llamad_matcher *matcher, const char *bytes, size_t n)
    int32_t llamad_matcher_mask(llamad_matcher *matcher, float *logits)
    int32_t llamad_matcher_bits(llamad_matcher *matcher, uint64_t *bits)
    int32_t llamad_matcher_forced(llamad_matcher *matcher, int32_t *tokens, int32_t n_max)
    uint64_t llamad_grammar_publish(llamad_grammar *grammar, const llamad_trie *trie)
    void llamad_grammar_withdraw(uint64_t id)
    llamad_matcher *llamad_matcher_open_published(uint64_t id)


# --- for the engine -------------------------------------------------------------------------------------------

cdef llamad_matcher *matcher_open(uint64_t grammar_id) noexcept nogil:
    """Return a matcher at the start of a published grammar, or NULL."""
    return llamad_matcher_open_published(grammar_id)


cdef void matcher_close(llamad_matcher *matcher) noexcept nogil:
    llamad_matcher_close(matcher)


cdef void matcher_set_allowance(llamad_matcher *matcher, int64_t n) noexcept nogil:
    """Limit the work of the next calls to n edges; beyond it they return LLAMAD_GRAMMAR_E_LATER. Below 0: no limit."""
    llamad_matcher_set_allowance(matcher, n)


cdef void matcher_cancel(llamad_matcher *matcher) noexcept nogil:
    llamad_matcher_cancel(matcher)


cdef int32_t matcher_may_end(llamad_matcher *matcher) noexcept nogil:
    return llamad_matcher_may_end(matcher)


cdef int32_t matcher_allows(llamad_matcher *matcher, int32_t token) noexcept nogil:
    return llamad_matcher_allows(matcher, token)


cdef int32_t matcher_accept(llamad_matcher *matcher, int32_t token) noexcept nogil:
    return llamad_matcher_accept(matcher, token)


cdef int32_t matcher_mask(llamad_matcher *matcher, float *logits) noexcept nogil:
    return llamad_matcher_mask(matcher, logits)


cdef int32_t matcher_forced(llamad_matcher *matcher, int32_t *tokens, int32_t n_max) noexcept nogil:
    """Write the tokens of a text that must come next, and return how many. The model may spell it with others."""
    return llamad_matcher_forced(matcher, tokens, n_max)


# --- for Python -----------------------------------------------------------------------------------------------

class GrammarError(ValueError):
    """A grammar that cannot be used. line and column count from 1; both are 0 if the error has no place."""

    def __init__(self, line: int, column: int, reason: str) -> None:
        where = f"line {line}, column {column}: " if line else ""
        super().__init__(f"{where}{reason}")
        self.line = line
        self.column = column
        self.reason = reason


class GrammarTooMuch(ValueError):
    """A text needs more memory or work than a grammar may use."""


class GrammarLater(Exception):
    """A call needs more work than its allowance."""


ctypedef struct Words:
    const llamad_table *table
    const void *handle


cdef int32_t _find_token(void *arg, const char *text, int32_t n) noexcept nogil:
    """Return the token whose text this is, or -1 if it is not exactly one token; arg points to Words."""
    cdef Words *words = <Words *>arg
    cdef int32_t tokens[2]
    return tokens[0] if words.table.tokenize(words.handle, text, n, tokens, 2, 0, 1, NULL) == 1 else -1


cdef class Pieces:
    """The texts of all tokens, including special ones, as a tree of bytes. Grammars need it to match tokens.
    It is made once per model, on a worker thread, because that takes a moment for a large vocabulary."""
    cdef llamad_trie *trie
    cdef char *bytes
    cdef uint32_t *offsets
    cdef Vocab vocab

    def __cinit__(self, vocab: Vocab) -> None:
        cdef uint64_t n_used = 0, n_max = <uint64_t>vocab.n_vocab * 8 + 4096
        cdef int32_t token, n
        cdef void *more
        self.vocab = vocab
        self.offsets = <uint32_t *>calloc(<size_t>vocab.n_vocab + 1, sizeof(uint32_t))
        self.bytes = <char *>malloc(n_max)
        if self.offsets == NULL or self.bytes == NULL:
            raise MemoryError()
        for token in range(vocab.n_vocab):
            n = vocab.table.piece(vocab.handle, token, self.bytes + n_used, <int32_t>(n_max - n_used), 1)
            if n < 0 and n != INT32_MIN:
                n_max = n_max * 2 + <uint64_t>(-n)
                more = realloc(self.bytes, n_max)
                if more == NULL:
                    raise MemoryError()
                self.bytes = <char *>more
                n = vocab.table.piece(vocab.handle, token, self.bytes + n_used, <int32_t>(n_max - n_used), 1)
            n_used += <uint64_t>max(n, 0)
            self.offsets[token + 1] = <uint32_t>n_used
        with nogil:
            self.trie = llamad_trie_open(self.bytes, self.offsets, vocab.pieces.is_eog, vocab.n_vocab)
        if self.trie == NULL:
            raise MemoryError()

    def __dealloc__(self) -> None:
        llamad_trie_close(self.trie)
        free(self.bytes)
        free(self.offsets)


cdef class Grammar:
    """A compiled GBNF text. It is immutable to Python and shared by every task that names it.

    With `pieces` it may refer to tokens and be used by tasks; without, it can only check bytes."""
    cdef llamad_grammar *grammar
    cdef Pieces pieces
    cdef readonly uint64_t id

    def __cinit__(self, text: str, pieces: Pieces | None = None, *, time_max_us: int = 0) -> None:
        cdef llamad_grammar_error error
        cdef int64_t time_max = time_max_us
        cdef Words words
        cdef int32_t n_vocab = 0
        cdef llamad_find_token find = NULL
        data = text.encode("utf-8", "replace")
        cdef const char *chars = PyBytes_AS_STRING(data)
        cdef size_t n = <size_t>PyBytes_GET_SIZE(data)
        if pieces is not None:
            self.pieces = pieces
            words.table = pieces.vocab.table
            words.handle = pieces.vocab.handle
            n_vocab = pieces.vocab.n_vocab
            find = _find_token
        with nogil:
            self.grammar = llamad_grammar_open(chars, n, n_vocab, find, &words, time_max, &error)
        if self.grammar == NULL:
            raise GrammarError(error.line, error.column, error.reason.decode("utf-8", "replace"))
        if pieces is not None:
            self.id = llamad_grammar_publish(self.grammar, self.pieces.trie)
            if self.id == 0:
                raise MemoryError()

    def __dealloc__(self) -> None:
        if self.id:
            llamad_grammar_withdraw(self.id)
        llamad_grammar_drop(self.grammar)

    @property
    def n_bytes(self) -> int:
        """The memory that it takes, including everything it has cached so far."""
        return llamad_grammar_bytes(self.grammar)

    def accepts(self, data: bytes) -> bool:
        """Return whether the bytes are a complete text of the grammar."""
        return self._judge(data, True)

    def accepts_prefix(self, data: bytes) -> bool:
        """Return whether a text of the grammar can begin with these bytes."""
        return self._judge(data, False)

    def _judge(self, data: bytes, whole: bool) -> bool:
        cdef llamad_matcher *matcher = llamad_matcher_open(self.grammar, NULL)
        cdef const char *chars = PyBytes_AS_STRING(data)
        cdef size_t n = <size_t>PyBytes_GET_SIZE(data)
        cdef int32_t code, may_end
        if matcher == NULL:
            raise MemoryError()
        with nogil:
            code = llamad_matcher_feed(matcher, chars, n)
            may_end = llamad_matcher_may_end(matcher)
            llamad_matcher_close(matcher)
        return _checked(code) == 0 and (not whole or may_end == 1)


cdef class Matcher:
    """A position in a grammar, for tests and benchmarks. The matchers of tasks are in the engine."""
    cdef llamad_matcher *matcher
    cdef Grammar grammar

    def __cinit__(self, grammar: Grammar) -> None:
        if grammar.pieces is None:
            raise ValueError("a grammar without a vocabulary has no tokens to match")
        self.grammar = grammar
        self.matcher = llamad_matcher_open(grammar.grammar, grammar.pieces.trie)
        if self.matcher == NULL:
            raise MemoryError()

    def __dealloc__(self) -> None:
        llamad_matcher_close(self.matcher)

    def set_allowance(self, n: int) -> None:
        """Limit the work of the next calls to n edges; beyond it they raise GrammarLater. Below 0: no limit."""
        llamad_matcher_set_allowance(self.matcher, n)

    def cancel(self) -> None:
        llamad_matcher_cancel(self.matcher)

    @property
    def may_end(self) -> bool:
        return llamad_matcher_may_end(self.matcher) == 1

    def allows(self, token: int) -> bool:
        return _checked(llamad_matcher_allows(self.matcher, token)) == 1

    def accept(self, token: int) -> bool:
        """Advance by a token; return False, and change nothing, if the token does not fit."""
        return _checked(llamad_matcher_accept(self.matcher, token)) == 0

    def mask(self, float[::1] logits) -> int:
        """Set the logits of tokens that may not come next to -inf; return how many tokens may."""
        assert logits.shape[0] == self.grammar.pieces.vocab.n_vocab
        cdef int32_t code
        with nogil:
            code = llamad_matcher_mask(self.matcher, &logits[0])
        return _checked(code)

    def forced(self, n_max: int = 256) -> list[int]:
        """Return tokens that spell the text that must come next, at most n_max."""
        cdef int32_t tokens[256]
        cdef int32_t n = llamad_matcher_forced(self.matcher, tokens, min(256, n_max))
        return [tokens[i] for i in range(n)]

    def bits(self) -> bytes:
        """Return the tokens that may come next: a bit for each token, the first in the lowest bit."""
        n = (self.grammar.pieces.vocab.n_vocab + 63) // 64 * 8
        out = PyBytes_FromStringAndSize(NULL, n)
        _checked(llamad_matcher_bits(self.matcher, <uint64_t *>PyBytes_AS_STRING(out)))
        return out


cdef int32_t _checked(int32_t code) except? -1:
    if code == LLAMAD_GRAMMAR_E_TOO_MUCH:
        raise GrammarTooMuch("the text needs more memory or work than a grammar may use")
    if code == LLAMAD_GRAMMAR_E_LATER:
        raise GrammarLater("the call needs more work than its allowance")
    if code == LLAMAD_GRAMMAR_E_MEMORY:
        raise MemoryError()
    return code
