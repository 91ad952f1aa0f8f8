# Writes server-sent events, for every dialect. Runs on the event loop. Most events are a piece of text in a frame that
# is the same for a whole stream; those are written here without creating any object except the result.
import msgspec

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from llamad.base.digits cimport put_decimal
from llamad.http.sse import format_event

cdef enum:
    DIGITS_MAX = 20
    ESCAPE_MAX = 6           # \u0000
    SMALL_MAX = 1024         # a larger event needs the heap

cdef object _encode = msgspec.json.Encoder().encode
cdef bytes _TOKENS = b',"tokens":['
cdef const char *_HEX = "0123456789abcdef"


def write_event(object value, bytes name=b""):
    """Return an event whose data is this value as JSON."""
    return format_event(_encode(value), name)


cdef char *_put(char *at, bytes text):
    cdef Py_ssize_t n = PyBytes_GET_SIZE(text)
    memcpy(at, PyBytes_AS_STRING(text), <size_t>n)
    return at + n


cdef char *_put_escaped(char *at, unsigned char c) noexcept:
    """Write a character that JSON requires to be escaped."""
    cdef char letter = 0
    if c == b'"' or c == b"\\":
        letter = <char>c
    elif c == b"\n":
        letter = b"n"
    elif c == b"\r":
        letter = b"r"
    elif c == b"\t":
        letter = b"t"
    elif c == 8:
        letter = b"b"
    elif c == 12:
        letter = b"f"
    at[0] = b"\\"
    if letter:
        at[1] = letter
        return at + 2
    at[1] = b"u"
    at[2] = at[3] = b"0"
    at[4] = _HEX[c >> 4]
    at[5] = _HEX[c & 15]
    return at + ESCAPE_MAX


cdef char *_put_json(char *at, const unsigned char *data, Py_ssize_t n) noexcept:
    """Write valid UTF-8 as a JSON string."""
    cdef Py_ssize_t i
    at[0] = b'"'
    at += 1
    for i in range(n):
        if data[i] < 0x20 or data[i] == b'"' or data[i] == b"\\":
            at = _put_escaped(at, data[i])
        else:
            at[0] = <char>data[i]
            at += 1
    at[0] = b'"'
    return at + 1


cdef char *_put_tokens(char *at, list tokens):
    cdef char digits[DIGITS_MAX]
    cdef char *first
    cdef Py_ssize_t i, n_digits
    at = _put(at, _TOKENS)
    for i in range(PyList_GET_SIZE(tokens)):
        if i:
            at[0] = b","
            at += 1
        first = put_decimal(digits + DIGITS_MAX, <unsigned long long><int32_t>tokens[i])
        n_digits = digits + DIGITS_MAX - first
        memcpy(at, first, <size_t>n_digits)
        at += n_digits
    at[0] = b"]"
    return at + 1


cdef bint _is_ascii(const unsigned char *data, Py_ssize_t n) noexcept:
    cdef Py_ssize_t i
    for i in range(n):
        if data[i] >= 0x80:
            return False
    return True


cdef class TextFrame:
    """The event around a text: `before` ends where the JSON string begins, `after` continues after it. With `tokens`,
    the field of that name is between the two. `name` is the name of the event, if it has one."""

    def __init__(self, bytes before, bytes after, *, bytes name=b"", bint tokens=False):
        self.before = (b"event: " + name + b"\n" if name else b"") + b"data: " + before
        self.after = after + b"\n\n"
        self.has_tokens = tokens

    cdef bytes make(self, const unsigned char *data, Py_ssize_t n, list tokens):
        cdef Py_ssize_t n_max = PyBytes_GET_SIZE(self.before) + PyBytes_GET_SIZE(self.after) + 2 + ESCAPE_MAX * n
        cdef char small[SMALL_MAX]
        cdef char *out = small
        cdef char *at
        if self.has_tokens:
            n_max += PyBytes_GET_SIZE(_TOKENS) + 1 + PyList_GET_SIZE(tokens) * (DIGITS_MAX + 1)
        if n_max > SMALL_MAX:
            out = <char *>malloc(<size_t>n_max)
            if out == NULL:
                raise MemoryError()
        try:
            at = _put_json(_put(out, self.before), data, n)
            if self.has_tokens:
                at = _put_tokens(at, tokens)
            at = _put(at, self.after)
            return PyBytes_FromStringAndSize(out, at - out)
        finally:
            if out != small:
                free(out)

    cpdef bytes of_bytes(self, bytes data, list tokens):
        """Return the event for a text; bytes that are not UTF-8 become U+FFFD."""
        if not _is_ascii(<const unsigned char *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)):
            data = data.decode("utf-8", "replace").encode()
        return self.make(<const unsigned char *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), tokens)

    def of_text(self, str text) -> bytes:
        cdef Py_ssize_t n = 0
        cdef const char *data = PyUnicode_AsUTF8AndSize(text, &n)
        return self.make(<const unsigned char *>data, n, [])
