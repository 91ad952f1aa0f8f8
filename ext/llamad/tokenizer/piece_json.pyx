# Owns: the JSON of /tokenize with the pieces of tokens. Any thread, without the GIL and without a Python object for
# each token: a megabyte of text may have a million of them.
from libc.stdint cimport INT32_MIN, int32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from llamad.base.digits cimport put_decimal, put_hex
from llamad.tokenizer.vocab cimport Vocab


class TooLarge(ValueError):
    """The JSON would be larger than allowed."""


cdef enum:
    _DONE = 0
    _TOO_LARGE = 1
    _NO_MEMORY = 2
    _PIECE_MAX = 256       # a longer piece needs a second call
    _NUMBER_MAX = 24       # bytes of a number, or of any text around a piece
    _BYTE_MAX = 6          # the longest form of one byte of a piece: \u0000

cdef struct Text:
    char *bytes
    size_t n
    size_t n_max


cdef bint _reserve(Text *text, size_t n) noexcept nogil:
    cdef size_t n_max = text.n_max * 2 if text.n_max else 4096
    cdef void *more
    if text.n + n <= text.n_max:
        return True
    if n_max < text.n + n:
        n_max = text.n + n
    more = realloc(text.bytes, n_max)
    if more == NULL:
        return False
    text.bytes = <char *>more
    text.n_max = n_max
    return True


cdef void _put(Text *text, const char *data, size_t n) noexcept nogil:
    memcpy(text.bytes + text.n, data, n)
    text.n += n


cdef void _put_number(Text *text, unsigned long long value) noexcept nogil:
    cdef char digits[_NUMBER_MAX]
    cdef char *end = digits + sizeof(digits)
    cdef char *first = put_decimal(end, value)
    _put(text, first, <size_t>(end - first))


cdef bint _is_utf8(const unsigned char *at, const unsigned char *end) noexcept nogil:
    """Return whether Python could decode the bytes: no surrogates, no overlong forms."""
    cdef unsigned char first
    cdef int n, i
    cdef unsigned int code, least
    while at < end:
        first = at[0]
        at += 1
        if first < 0x80:
            continue
        if first < 0xc2 or first > 0xf4:
            return False
        n = 1 if first < 0xe0 else 2 if first < 0xf0 else 3
        least = 0x80 if n == 1 else 0x800 if n == 2 else 0x10000
        if end - at < n:
            return False
        code = first & (0x3f >> n)
        for i in range(n):
            if at[i] & 0xc0 != 0x80:
                return False
            code = code << 6 | (at[i] & 0x3f)
        at += n
        if code < least or code > 0x10ffff or 0xd800 <= code < 0xe000:
            return False
    return True


cdef void _put_string(Text *text, const unsigned char *at, const unsigned char *end) noexcept nogil:
    cdef char hex[8]
    _put(text, b'"', 1)
    while at < end:
        if at[0] == b'"' or at[0] == b"\\":
            _put(text, b"\\", 1)
            _put(text, <const char *>at, 1)
        elif at[0] < 0x20:
            _put(text, b"\\u", 2)
            put_hex(hex + 4, at[0], 4)
            _put(text, hex, 4)
        else:
            _put(text, <const char *>at, 1)
        at += 1
    _put(text, b'"', 1)


cdef void _put_list(Text *text, const unsigned char *at, const unsigned char *end) noexcept nogil:
    cdef const unsigned char *first = at
    _put(text, b"[", 1)
    while at < end:
        if at > first:
            _put(text, b",", 1)
        _put_number(text, at[0])
        at += 1
    _put(text, b"]", 1)


cdef int _write(Vocab vocab, const int32_t *ids, Py_ssize_t n_ids, Text *text, size_t n_max) noexcept nogil:
    cdef char small[_PIECE_MAX]
    cdef char *large = NULL
    cdef char *piece
    cdef void *more
    cdef int32_t n
    cdef Py_ssize_t i
    cdef int result = _DONE
    if not _reserve(text, 2 * _NUMBER_MAX):
        return _NO_MEMORY
    _put(text, b'{"tokens":[', 11)
    for i in range(n_ids):
        piece = small
        n = vocab.table.piece(vocab.handle, ids[i], small, sizeof(small), 1)
        if n == INT32_MIN:
            n = 0
        elif n < 0:
            n = -n
            more = realloc(large, <size_t>n)
            if more == NULL:
                result = _NO_MEMORY
                break
            piece = large = <char *>more
            vocab.table.piece(vocab.handle, ids[i], large, n, 1)
        if not _reserve(text, <size_t>n * _BYTE_MAX + 4 * _NUMBER_MAX):
            result = _NO_MEMORY
            break
        _put(text, b',{"id":' if i > 0 else b'{"id":', 7 if i > 0 else 6)
        _put_number(text, <unsigned long long>ids[i])
        _put(text, b',"piece":', 9)
        if _is_utf8(<unsigned char *>piece, <unsigned char *>piece + n):
            _put_string(text, <unsigned char *>piece, <unsigned char *>piece + n)
        else:
            _put_list(text, <unsigned char *>piece, <unsigned char *>piece + n)
        _put(text, b"}", 1)
        if text.n > n_max:
            result = _TOO_LARGE
            break
    _put(text, b"]}", 2)
    free(large)
    return result


def pieces_json(vocab: Vocab, packed: bytes, bytes_max: int) -> bytes:
    """Return {"tokens": [{"id": ..., "piece": ...}, ...]} for valid ids; a piece that is not UTF-8 is an array of its
    bytes. Raises TooLarge."""
    cdef Vocab own = vocab
    cdef const int32_t *ids = <const int32_t *>PyBytes_AS_STRING(packed)
    cdef Py_ssize_t n = PyBytes_GET_SIZE(packed) // <Py_ssize_t>sizeof(int32_t)
    cdef size_t n_max = bytes_max
    cdef Text text
    cdef int result
    text.bytes, text.n, text.n_max = NULL, 0, 0
    try:
        with nogil:
            result = _write(own, ids, n, &text, n_max)
        if result == _NO_MEMORY:
            raise MemoryError
        if result == _TOO_LARGE:
            raise TooLarge
        return PyBytes_FromStringAndSize(text.bytes, <Py_ssize_t>text.n)
    finally:
        free(text.bytes)
