# Owns: the limits on the structure of JSON from outside, checked in one pass before anything decodes it.
# Any thread, without the GIL. A decoder holds the GIL from the first value to the last, and the limits bound that time.
# It counts but does not validate: the decoder reports anything that is not JSON.
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

DEPTH_MAX = 128
# The limit on values, weighted by their decoding cost: a number, true, false or null counts 1, a string 2, an array or
# an object 4, a key 6. A number that is hard to round to a float counts more, because the decoder has a slow path for
# it: an exponent of 300 takes 10 us. A decoder that reaches the limit has taken about 20 ms, whatever the values are.
VALUES_MAX = 400_000

TOO_MANY, TOO_DEEP = -1, -2

cdef enum:
    _STRING = 2
    _KEY = 4          # in addition to the key's string
    _CONTAINER = 4
    _DIGITS = 32      # digits of a number; each further digit counts as another number
    _HARD = 12        # in addition to the number; the absolute value of an exponent is added too
    _EXPONENT = 400   # no exponent counts more than this
    _WIDE = 20        # bytes of a non-ASCII string that cost as much as a number
    _ESCAPES = 10     # escapes that cost as much as a number

# The most memory that decoded values can take, in bytes. A string's text is added to it.
cdef enum:
    _NUMBER_BYTES = 44
    _STRING_BYTES = 88
    _KEY_BYTES = 48       # in addition to the key's string: its entry in a dict
    _CONTAINER_BYTES = 160
    _WIDE_TEXT = 4        # bytes per character, if the string is not ASCII

cdef enum Kind:
    _OTHER            # numbers, words, and anything that is not JSON
    _SPACE
    _QUOTE
    _OPEN
    _CLOSE
    _COLON
    _COMMA

cdef unsigned char[256] _KINDS
cdef int _code
for _code in range(256):
    _KINDS[_code] = _OTHER
for _code in b" \t\r\n":
    _KINDS[_code] = _SPACE
for _code in b"[{":
    _KINDS[_code] = _OPEN
for _code in b"]}":
    _KINDS[_code] = _CLOSE
_KINDS[b'"'] = _QUOTE
_KINDS[b":"] = _COLON
_KINDS[b","] = _COMMA


cdef inline bint _is_plain(const unsigned char *at) noexcept nogil:
    """Return whether the next eight bytes are ASCII without quote and backslash. It may return False wrongly."""
    cdef uint64_t eight, quotes, slashes
    memcpy(&eight, at, 8)
    quotes = eight ^ <uint64_t>0x2222222222222222
    slashes = eight ^ <uint64_t>0x5c5c5c5c5c5c5c5c
    quotes = (quotes - <uint64_t>0x0101010101010101) & ~quotes
    slashes = (slashes - <uint64_t>0x0101010101010101) & ~slashes
    return ((eight | quotes | slashes) & <uint64_t>0x8080808080808080) == 0


cdef inline bint _is_digit(unsigned char byte) noexcept nogil:
    return b"0" <= byte <= b"9"


cdef long long _hardness(const unsigned char *at, const unsigned char *end) noexcept nogil:
    """Return the extra cost of a number that is hard to decode. It is 0 for words such as `true`."""
    cdef const unsigned char *one
    cdef int n_before = 0      # digits before the point
    cdef int n_significant = 0
    cdef bint has_point = False
    cdef long long exponent = 0
    if at[0] == b"-":
        at += 1
    if at == end or not _is_digit(at[0]):
        return 0
    one = at
    while one < end:
        if one[0] == b"e" or one[0] == b"E":
            while one < end and exponent < _EXPONENT:
                if _is_digit(one[0]):
                    exponent = exponent * 10 + one[0] - c'0'
                one += 1
            return _HARD + min(exponent, <long long>_EXPONENT)
        if one[0] == b".":
            has_point = True
        else:
            n_before += not has_point
            n_significant += one[0] != b"0" or n_significant > 0
        one += 1
    if has_point:
        return _HARD if n_before >= 16 or n_significant > 17 else 0
    return _HARD if n_before > 19 else 0


# Returns what is left of the limit, or TOO_MANY or TOO_DEEP; adds the memory of the decoded values to n_bytes.
cdef long long _left(const unsigned char *at, const unsigned char *end, long long left, int n_levels,
                     long long *n_bytes) noexcept nogil:
    cdef const unsigned char *first
    cdef unsigned char kind, seen
    cdef long long n_escapes
    while at < end:
        kind = _KINDS[at[0]]
        if kind == _QUOTE:
            at += 1
            first, seen, n_escapes = at, 0, 0
            while at < end:
                while end - at >= 8 and _is_plain(at):
                    at += 8
                if at == end or at[0] == b'"':
                    break
                seen |= at[0]
                if at[0] == b"\\":
                    at += 1
                    n_escapes += 1
                    if at < end and at[0] == b"u":
                        seen |= 128
                at += 1
            left -= _STRING + n_escapes // _ESCAPES
            n_bytes[0] += _STRING_BYTES + (at - first) * (_WIDE_TEXT if seen >= 128 else 1)
            if seen >= 128:
                left -= (at - first) // _WIDE
            at += 1
        elif kind == _OTHER:
            first = at
            while at < end and _KINDS[at[0]] == _OTHER:
                at += 1
            left -= 1 + _hardness(first, at)
            n_bytes[0] += _NUMBER_BYTES
            if at - first > _DIGITS:
                left -= at - first - _DIGITS
        else:
            at += 1
            if kind == _OPEN:
                left -= _CONTAINER
                n_bytes[0] += _CONTAINER_BYTES
                n_levels -= 1
                if n_levels < 0:
                    return -2
            elif kind == _CLOSE:
                n_levels += 1
            elif kind == _COLON:
                left -= _KEY
                n_bytes[0] += _KEY_BYTES
        if left < 0:
            return -1
    return left


def values_left(data, long long values_max=VALUES_MAX) -> int:
    """Return what the JSON leaves of the limit, or TOO_MANY or TOO_DEEP (both negative) if it exceeds one."""
    return _scan(data, values_max)[0]


def decoded_bytes(data) -> int:
    """Return the most memory that the decoded JSON can take; 0 if it exceeds a limit, because it is not decoded."""
    left, n_bytes = _scan(data, VALUES_MAX)
    return n_bytes if left >= 0 else 0


cdef tuple _scan(data, long long values_max):
    cdef Py_buffer view
    cdef long long left, n_bytes = 0
    cdef int n_levels = DEPTH_MAX
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    with nogil:
        left = _left(
            <const unsigned char *>view.buf, <const unsigned char *>view.buf + view.len, values_max, n_levels,
            &n_bytes
        )
    PyBuffer_Release(&view)
    return left, n_bytes
