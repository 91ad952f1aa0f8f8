# Owns: the way of a piece of text from the engine's event to the client's connection, which is taken for every token of
# every stream. Runs on the event loop. What an endpoint's events look like is its own; only the plainest is made here.
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy
from time import monotonic

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE

from llamad.base.digits cimport put_decimal
from llamad.http.exchange cimport Exchange

cdef enum:
    DIGITS_MAX = 20
    PLAIN_MAX = 4096

cdef bytes _BEGIN = b'data: {"content":"'
cdef bytes _MIDDLE = b'","tokens":['
cdef bytes _END = b'],"stop":false}\n\n'


cdef char *_put(char *at, bytes text):
    cdef Py_ssize_t n = PyBytes_GET_SIZE(text)
    memcpy(at, PyBytes_AS_STRING(text), <size_t>n)
    return at + n


cdef char *_put_text(char *at, const unsigned char *data, Py_ssize_t n):
    """The text as inside of a JSON string, or NULL where it is not plain ASCII."""
    cdef Py_ssize_t i
    cdef unsigned char c
    for i in range(n):
        c = data[i]
        if c == b"\n":
            at[0] = b"\\"
            at[1] = b"n"
            at += 2
            continue
        if c < 0x20 or c >= 0x7F:
            return NULL
        if c == b'"' or c == b"\\":
            at[0] = b"\\"
            at += 1
        at[0] = <char>c
        at += 1
    return at


def plain_event(list tokens, bytes data):
    """An event of /completion with text and tokens alone; None for text that is not plain ASCII or long."""
    cdef Py_ssize_t n_tokens = PyList_GET_SIZE(tokens), n = PyBytes_GET_SIZE(data), i, n_digits
    cdef char digits[DIGITS_MAX]
    cdef char *first
    cdef char *at
    cdef bytes out
    if n + n_tokens > PLAIN_MAX:
        return None
    out = PyBytes_FromStringAndSize(NULL, 64 + 2 * n + n_tokens * (DIGITS_MAX + 1))
    at = _put(PyBytes_AS_STRING(out), _BEGIN)
    at = _put_text(at, <const unsigned char *>PyBytes_AS_STRING(data), n)
    if at == NULL:
        return None
    at = _put(at, _MIDDLE)
    for i in range(n_tokens):
        if i:
            at[0] = b","
            at += 1
        first = put_decimal(digits + DIGITS_MAX, <unsigned long long><int32_t>tokens[i])
        n_digits = digits + DIGITS_MAX - first
        memcpy(at, first, <size_t>n_digits)
        at += n_digits
    at = _put(at, _END)
    return PyBytes_FromStringAndSize(PyBytes_AS_STRING(out), at - PyBytes_AS_STRING(out))


cdef class TextPart:
    """The part of a Part that hears of every token."""

    cdef public object job
    cdef public int64_t n_decoded
    cdef public int64_t t_last_us
    cdef public bint is_plain  # its events are plain_event()'s

    def on_text(self, list tokens, bytes data, int64_t n_decoded, int64_t t_us, int64_t prompt_us, int64_t predict_us,
                list probs):
        cdef object job = self.job, metrics = job.service.metrics
        cdef object event = None
        cdef Exchange exchange
        cdef int64_t n_new
        if self.n_decoded == 0:
            # A plain request hears of many tokens at once: the first came when predicting began.
            self.n_decoded = 1
            self.t_last_us = t_us - predict_us
            metrics.first_token_seconds.observe(<double>self.t_last_us / 1e6 - job.exchange.request.t_start)
        n_new = n_decoded - self.n_decoded
        if n_new > 0:
            metrics.token_gap_seconds.observe(<double>(t_us - self.t_last_us) / 1e6 / <double>n_new, n_new)
        self.n_decoded = n_decoded
        self.t_last_us = t_us
        if self.is_plain and not probs:
            event = plain_event(tokens, data)
        if event is None:
            self.on_piece(tokens, data, probs, prompt_us, predict_us)
            return
        exchange = job.exchange
        if exchange.closed or not exchange._begun:
            job.write(event)
            return
        job.t_written = monotonic()
        exchange.write(event)
