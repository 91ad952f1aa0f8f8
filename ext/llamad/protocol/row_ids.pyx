# Makes the ids of rows, which row_ids.pxd describes. Runs on the event loop.
import hashlib
import struct

from libc.stdint cimport int32_t, uint32_t

from cpython.bytes cimport PyBytes_AS_STRING


def row_ids(digest: bytes, number: int, n: int, n_pos: int, is_non_causal: bool) -> bytes:
    """The ids of run `number` of a file, n rows that take n_pos positions, as int32. No other run begins with the same:
    their number is in the digest, too."""
    cdef bytes shape = struct.pack("<III", number, n, n_pos)
    cdef bytes ids = hashlib.shake_256(digest + shape).digest(4 * n)
    cdef uint32_t *at = <uint32_t *>PyBytes_AS_STRING(ids)  # its only reference
    cdef int32_t i
    if n < 1 or not 1 <= n_pos <= N_POS_MAX or (n == 1 and n_pos != 1):
        raise ValueError(f"a run of {n} rows cannot take {n_pos} positions")
    for i in range(<int32_t>n):
        at[i] = (at[i] | 0x80000000) & ~<uint32_t>(1 | ROW_BEGINS)
    at[0] = (at[0] & ~<uint32_t>(ROW_NON_CAUSAL | ROW_GRID)) | ROW_BEGINS
    if is_non_causal:
        at[0] |= ROW_NON_CAUSAL
    if n_pos != n:
        at[0] |= ROW_GRID
        at[1] = (at[1] & ~<uint32_t>(N_POS_MAX << N_POS_SHIFT)) | <uint32_t>n_pos << N_POS_SHIFT
    return ids


def positions(ids: bytes) -> int:
    """Return the number of positions that the ids take."""
    return ids_positions(<const int32_t *>PyBytes_AS_STRING(ids), <int32_t>(len(ids) // 4))


def without_rows(ids: bytes) -> bytes:
    """Return the tokens among the ids; this is the same object if there are no rows."""
    cdef const int32_t *at = <const int32_t *>PyBytes_AS_STRING(ids)
    cdef Py_ssize_t i, n = len(ids) // 4
    for i in range(n):
        if at[i] < 0:
            return b"".join([ids[4 * k:4 * k + 4] for k in range(n) if at[k] >= 0])
    return ids
