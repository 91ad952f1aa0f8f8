# Owns: conversion of token ids between Python lists, JSON and the packed int32s that the engine takes. Pure, any
# thread.
from libc.stdint cimport int32_t
from libc.string cimport memcpy

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from llamad.base.digits cimport put_decimal

cdef extern from "Python.h":
    bint PyLong_CheckExact(object o)
    long PyLong_AsLongAndOverflow(object o, int *overflow) except? -1


def pack(ids: list, n_vocab: int) -> bytes | None:
    """Return the ids as int32s in bytes, or None if one is not an integer or is outside the vocabulary."""
    cdef Py_ssize_t i, n = len(ids)
    cdef long id, n_known = n_vocab
    cdef int overflow = 0
    cdef bytes out = PyBytes_FromStringAndSize(NULL, n * <Py_ssize_t>sizeof(int32_t))
    cdef int32_t *to = <int32_t *>PyBytes_AS_STRING(out)
    for i in range(n):
        one = ids[i]
        if not PyLong_CheckExact(one):
            return None
        id = PyLong_AsLongAndOverflow(one, &overflow)
        if overflow != 0 or not 0 <= id < n_known:
            return None
        to[i] = <int32_t>id
    return out


cdef Py_ssize_t _n_text(const int32_t *ids, Py_ssize_t n) noexcept nogil:
    """Return the length of the ids as a JSON array."""
    cdef Py_ssize_t i, n_text = 2
    cdef int32_t rest
    for i in range(n):
        n_text += 2
        rest = ids[i]
        while rest >= 10:
            rest //= 10
            n_text += 1
    return n_text - 1 if n > 0 else n_text


cdef void _put(char *to, const int32_t *ids, Py_ssize_t n) noexcept nogil:
    cdef char text[24]
    cdef char *end = text + sizeof(text)
    cdef char *first
    cdef Py_ssize_t i
    to[0] = b"["
    to += 1
    for i in range(n):
        if i > 0:
            to[0] = b","
            to += 1
        first = put_decimal(end, <unsigned long long>ids[i])
        memcpy(to, first, <size_t>(end - first))
        to += end - first
    to[0] = b"]"


def to_json(packed: bytes) -> bytes:
    """Return the ids, none of which may be negative, as a JSON array."""
    cdef const int32_t *ids = <const int32_t *>PyBytes_AS_STRING(packed)
    cdef Py_ssize_t n_text, n = PyBytes_GET_SIZE(packed) // <Py_ssize_t>sizeof(int32_t)
    cdef bytes out
    cdef char *to
    with nogil:
        n_text = _n_text(ids, n)
    out = PyBytes_FromStringAndSize(NULL, n_text)
    to = PyBytes_AS_STRING(out)
    with nogil:
        _put(to, ids, n)
    return out
