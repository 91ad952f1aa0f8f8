# Owns: the tokenizer threads. The event loop calls submit() and poll(); the threads never see Python. llama.cpp takes
# about 60 µs for the shortest text, which would delay every stream if the event loop did it.
import logging

from libc.stdint cimport INT32_MIN, int32_t
from libc.stdlib cimport calloc, free, malloc

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject

from llamad.base.system cimport close, wake_clear, wake_open, wake_send
from llamad.base.function_table cimport llamad_table
from llamad.base.thread_pool cimport (
    Job, JobPool, job_pool_add, job_pool_lock, job_pool_start, job_pool_stop, job_pool_unlock,
)
from llamad.tokenizer.vocab cimport Vocab

log = logging.getLogger("llamad.engine")

cdef enum:
    N_THREADS_MAX = 16
    TEXT_MAX = 1 << 28

# One text. The two objects belong to the event loop and are held until poll() has handed the tokens over.
ctypedef struct Text:
    Job job               # must be first: a pointer to the job is one to the text
    PyObject *bytes
    PyObject *callback
    const char *chars
    int32_t n_chars
    int32_t add_special
    int32_t parse_special
    int32_t *tokens
    int32_t n_tokens      # negative: the text could not be tokenized

ctypedef struct TokenizePool:
    JobPool jobs
    const llamad_table *table
    const void *vocab
    int fd
    Job *done             # a list of finished jobs, in no particular order
    Job *done_last


cdef void _tokenize(void *arg, Job *job, int32_t thread) noexcept nogil:
    cdef TokenizePool *pool = <TokenizePool *>arg
    cdef Text *text = <Text *>job
    cdef int32_t n_max = text.n_chars + 8, n = -n_max
    while n < 0 and n != INT32_MIN:
        n_max = max(n_max, -n)
        free(text.tokens)
        text.tokens = <int32_t *>malloc(<size_t>n_max * sizeof(int32_t))
        if text.tokens == NULL:
            n = INT32_MIN
            break
        n = pool.table.tokenize(pool.vocab, text.chars, text.n_chars, text.tokens, n_max, text.add_special,
                                text.parse_special, NULL)
    text.n_tokens = n


cdef void _on_done(void *arg, Job *job) noexcept nogil:
    cdef TokenizePool *pool = <TokenizePool *>arg
    if pool.done == NULL:
        pool.done = job
        wake_send(pool.fd)
    else:
        pool.done_last.next = job
    pool.done_last = job


cdef void _free_text(Text *text):
    Py_DECREF(<object>text.bytes)
    Py_DECREF(<object>text.callback)
    free(text.tokens)
    free(text)


cdef void _free_all(Job *job):
    cdef Job *next
    while job != NULL:
        next = job.next
        _free_text(<Text *>job)
        job = next


cdef class Tokenizing:
    """Tokenizes texts outside the event loop. Call poll() when `fd` is readable."""

    cdef TokenizePool *pool
    cdef Vocab vocab

    def __cinit__(self, vocab: Vocab, n_threads: int) -> None:
        cdef TokenizePool *pool = <TokenizePool *>calloc(1, sizeof(TokenizePool))
        if pool == NULL:
            raise MemoryError()
        pool.table = vocab.table
        pool.vocab = vocab.handle
        pool.fd = wake_open()
        if pool.fd < 0:
            free(pool)
            raise OSError("eventfd: no descriptors left")
        self.pool = pool
        self.vocab = vocab
        pool.jobs.arg = pool
        pool.jobs.run = _tokenize
        pool.jobs.on_done = _on_done
        job_pool_start(&pool.jobs, min(<int32_t>n_threads, <int32_t>N_THREADS_MAX))
        if pool.jobs.threads.n == 0:
            raise OSError("no thread can be started")

    @property
    def fd(self) -> int:
        return self.pool.fd

    def submit(self, text: bytes, add_special: bool, parse_special: bool, callback) -> None:
        """Tokenize a text. poll() calls callback(ids as int32s in bytes, or None if the text cannot be tokenized)."""
        cdef TokenizePool *pool = self.pool
        cdef Text *item
        if PyBytes_GET_SIZE(text) > TEXT_MAX:
            raise ValueError("the text is too long to tokenize")
        item = <Text *>calloc(1, sizeof(Text))
        if item == NULL:
            raise MemoryError()
        item.bytes = <PyObject *>text
        item.callback = <PyObject *>callback
        Py_INCREF(text)
        Py_INCREF(callback)
        item.chars = PyBytes_AS_STRING(text)
        item.n_chars = <int32_t>PyBytes_GET_SIZE(text)
        item.add_special = add_special
        item.parse_special = parse_special
        job_pool_lock(&pool.jobs)
        job_pool_add(&pool.jobs, &item.job)
        job_pool_unlock(&pool.jobs)

    def poll(self) -> int:
        """Call the callbacks of finished texts; return how many there were."""
        cdef TokenizePool *pool = self.pool
        cdef Job *job
        cdef Text *text
        cdef int n = 0
        wake_clear(pool.fd)
        job_pool_lock(&pool.jobs)
        job = pool.done
        pool.done = pool.done_last = NULL
        job_pool_unlock(&pool.jobs)
        while job != NULL:
            text = <Text *>job
            job = job.next
            callback = <object>text.callback
            tokens = (PyBytes_FromStringAndSize(<char *>text.tokens, text.n_tokens * <Py_ssize_t>sizeof(int32_t))
                      if text.n_tokens >= 0 else None)
            _free_text(text)
            n += 1
            try:
                callback(tokens)
            except Exception:  # the other callbacks must still be called
                log.exception("the callback of a tokenized text failed")
        return n

    def __dealloc__(self) -> None:
        cdef TokenizePool *pool = self.pool
        cdef Job *waiting
        if pool == NULL:
            return
        with nogil:
            waiting = job_pool_stop(&pool.jobs)
        _free_all(waiting)
        _free_all(pool.done)
        close(pool.fd)
        free(pool)
