# Owns: tables of n-grams that are read from files and written to them. A file is read before the engine starts, and
# written by another thread than the engine's.
#
# The file has no header. It is a list of records of 32-bit numbers in the machine's order: the tokens of an n-gram, 1 to
# 4, filled up with -1; how many tokens followed it; and for each of these the token and its count. The whole file is
# checked before anything is allocated for it. Of an n-gram or a follower that is there twice, llama.cpp takes the first,
# and so does llamad.
import os
import stat
import tempfile

from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memcpy

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

from llamad.base.system cimport load_int, sched_yield
from llamad.engine.drafts.ngram_table cimport (
    NGRAM_MAX, Ngram, table_add, table_find, table_follower, table_free, table_init, table_make,
    table_release, table_take,
)

cdef enum:
    HEAD = NGRAM_MAX + 1     # numbers of a record before its followers
    N_FOLLOWERS_MAX = 1 << 30
    # A table that learns has room for at least this many n-grams and followers, and for twice those of its file. A token
    # adds at most 4. Full, it takes 72 MB.
    N_LEARNED_MAX = 1 << 20

cdef enum Fault:
    FAULT_NONE = 0
    FAULT_END = 1
    FAULT_TOKEN = 2
    FAULT_NUMBER = 3
    FAULT_COUNT = 4
    FAULT_SIZE = 5

FAULTS = {
    FAULT_END: "it ends within a record",
    FAULT_TOKEN: "this is not a token of the model",
    FAULT_NUMBER: "this is not a number of tokens that followed an n-gram",
    FAULT_COUNT: "a count is not positive",
    FAULT_SIZE: "there are too many n-grams",
}


class BadLookupFile(ValueError):
    """A file cannot be read as a table of n-grams. The message names it and says why."""


# What a whole file has, or the fault at a position.
ctypedef struct Checked:
    int32_t fault
    int64_t at
    int64_t n_ngrams
    int64_t n_followers


cdef int _is_ngram(const int32_t *tokens, int32_t n_vocab) noexcept nogil:
    cdef int32_t i, n = 0
    while n < NGRAM_MAX and 0 <= tokens[n] < n_vocab:
        n += 1
    for i in range(n, NGRAM_MAX):
        if tokens[i] != -1:
            return 0
    return n > 0


cdef Checked _check(const int32_t *numbers, int64_t n, int32_t n_vocab) noexcept nogil:
    """Go through n numbers of a file."""
    cdef Checked checked
    cdef int64_t i
    checked.fault = FAULT_NONE
    checked.at = checked.n_ngrams = checked.n_followers = 0
    while checked.at < n and checked.fault == FAULT_NONE:
        if n - checked.at < HEAD:
            checked.fault = FAULT_END
        elif not _is_ngram(numbers + checked.at, n_vocab):
            checked.fault = FAULT_TOKEN
        elif not 0 < numbers[checked.at + NGRAM_MAX] <= n_vocab:
            checked.fault = FAULT_NUMBER
        elif n - checked.at - HEAD < 2 * <int64_t>numbers[checked.at + NGRAM_MAX]:
            checked.fault = FAULT_END
        if checked.fault != FAULT_NONE:
            break
        checked.n_ngrams += 1
        checked.n_followers += numbers[checked.at + NGRAM_MAX]
        i = checked.at + HEAD
        checked.at = i + 2 * <int64_t>numbers[checked.at + NGRAM_MAX]
        while i < checked.at:
            if not 0 <= numbers[i] < n_vocab or numbers[i + 1] <= 0:
                checked.fault = FAULT_COUNT if 0 <= numbers[i] < n_vocab else FAULT_TOKEN
                checked.at = i
            i += 2
    if checked.n_followers > N_FOLLOWERS_MAX:
        checked.fault = FAULT_SIZE
    return checked


cdef void _fill(NgramTable *t, const int32_t *numbers, int64_t n, int32_t sum_min) noexcept nogil:
    """Add the records of a checked file to a table with room for them; those that were seen less often than sum_min are
    left out."""
    cdef int64_t at = 0, i, end, total
    cdef int32_t size
    cdef Ngram *ngram
    while at < n:
        end = at + HEAD + 2 * <int64_t>numbers[at + NGRAM_MAX]
        size = 1
        while size < NGRAM_MAX and numbers[at + size] >= 0:
            size += 1
        total = 0
        for i in range(at + HEAD, end, 2):
            total += numbers[i + 1]
        if total >= sum_min and table_find(t, numbers + at, size) == NULL:
            ngram = table_make(t, numbers + at, size)
            for i in range(at + HEAD, end, 2):
                if table_follower(t, ngram, numbers[i]) == NULL:
                    table_add(t, ngram, numbers[i], numbers[i + 1])
        at = end


cdef void _put(const NgramTable *t, int32_t *numbers) noexcept nogil:
    """Write all records. Followers are in the order in which they were added."""
    cdef const Ngram *ngram
    cdef uint32_t i, k
    cdef int32_t *pair
    for i in range(t.n_ngrams):
        ngram = &t.ngrams[i]
        if ngram.n == 0:
            continue
        memcpy(numbers, ngram.tokens, NGRAM_MAX * sizeof(int32_t))
        numbers[NGRAM_MAX] = ngram.n
        numbers += HEAD + 2 * ngram.n
        pair = numbers
        k = ngram.last
        while k:
            pair -= 2
            pair[0] = t.followers[k - 1].token
            pair[1] = t.followers[k - 1].count
            k = t.followers[k - 1].next


cdef int64_t _n_numbers(const NgramTable *t) noexcept nogil:
    cdef int64_t n = 2 * <int64_t>t.n_followers
    cdef uint32_t i
    for i in range(t.n_ngrams):
        if t.ngrams[i].n:
            n += HEAD
    return n


def _read(path: str, may_be_new: bool) -> bytes:
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise BadLookupFile(f"{path} is not a regular file")
            return file.read()
    except FileNotFoundError:
        if may_be_new:
            return b""
        raise BadLookupFile(f"there is no file {path}") from None
    except OSError as e:
        raise BadLookupFile(f"cannot read {path}: {e.strerror}") from None


cdef class LookupFile:
    """A table of n-grams from a file. With `learns` the file may be missing or empty, and the table has room for more;
    if it is large, n-grams that were seen once are left out, because they never draft."""

    def __cinit__(self, path: str, n_vocab: int, *, learns: bool = False) -> None:
        cdef bytes data = _read(path, learns)
        cdef const int32_t *numbers = <const int32_t *>PyBytes_AS_STRING(data)
        cdef int64_t n = len(data) // 4, n_ngrams, n_followers
        cdef int32_t n_vocab_ = n_vocab, sum_min = 0
        cdef Checked checked
        cdef int result
        with nogil:
            checked = _check(numbers, n, n_vocab_)
        if checked.fault == FAULT_NONE and len(data) % 4:
            checked.fault = FAULT_END
        if checked.fault != FAULT_NONE:
            raise BadLookupFile(
                f"{path} is not a lookup cache of this model: at byte {4 * checked.at}, {FAULTS[checked.fault]}")
        self.path = path
        n_ngrams, n_followers = checked.n_ngrams, checked.n_followers
        if learns:
            sum_min = 2 if n_followers > N_LEARNED_MAX // 2 else 0
            n_ngrams = max(2 * n_ngrams, <int64_t>N_LEARNED_MAX)
            n_followers = max(2 * n_followers, <int64_t>N_LEARNED_MAX)
        with nogil:
            result = table_init(&self.table, <uint32_t>n_ngrams, <uint32_t>n_followers)
            if result == 0:
                _fill(&self.table, numbers, n, sum_min)
        if result != 0:
            raise MemoryError(f"no memory for {path}")

    def __dealloc__(self) -> None:
        table_free(&self.table)

    @property
    def n_ngrams(self) -> int:
        return self.table.n_ngrams

    @property
    def n_changes(self) -> int:
        """A number that changes when something is learned."""
        return load_int(&self.table.n_changes)

    def content(self) -> bytes:
        """Return the table as the bytes of a file. The engine may use the table meanwhile, but learns nothing."""
        cdef bytes data
        cdef int32_t *numbers
        cdef int64_t n
        with nogil:
            while not table_take(&self.table):
                sched_yield()
            n = _n_numbers(&self.table)
        try:
            data = PyBytes_FromStringAndSize(NULL, 4 * n)
            numbers = <int32_t *>PyBytes_AS_STRING(data)
            with nogil:
                _put(&self.table, numbers)
        finally:
            table_release(&self.table)
        return data

    def write(self) -> None:
        """Write the table to its file. Whatever happens, the file is the old one or the new one. Raise OSError."""
        path = os.path.realpath(self.path)
        handle, name = tempfile.mkstemp(prefix=".llamad-", dir=os.path.dirname(path))
        try:
            with open(handle, "wb") as file:
                file.write(self.content())
                file.flush()
                os.fsync(handle)
                if os.path.exists(path):
                    os.fchmod(handle, stat.S_IMODE(os.stat(path).st_mode))
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
