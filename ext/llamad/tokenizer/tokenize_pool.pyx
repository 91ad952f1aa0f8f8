# Owns: the tokenizing threads. submit() and poll() are the event loop's; the threads never see Python. llama.cpp takes
# some 60 µs for the shortest text, which on the event loop every stream would wait for.
import logging

from libc.stdint cimport INT32_MIN, int32_t
from libc.stdlib cimport calloc, free, malloc

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject

from llamad.base.system cimport close, wake_clear, wake_open, wake_send
from llamad.base.table cimport llamad_table
from llamad.tokenizer.vocab cimport Vocab
from llamad.base.pthread cimport (
    pthread_cond_broadcast, pthread_cond_destroy, pthread_cond_init, pthread_cond_signal, pthread_cond_t,
    pthread_cond_wait, pthread_create, pthread_join, pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock,
    pthread_mutex_t, pthread_mutex_unlock, pthread_t,
)

log = logging.getLogger("llamad.engine")

cdef enum:
    N_THREADS_MAX = 16
    TEXT_MAX = 1 << 28

# One text. The two objects are the event loop's, held until poll() has handed the tokens over.
ctypedef struct Text:
    Text *next
    PyObject *bytes
    PyObject *callback
    const char *chars
    int32_t n_chars
    int32_t add_special
    int32_t parse_special
    int32_t *tokens
    int32_t n_tokens      # negative: it could not be tokenized

ctypedef struct Pool:
    pthread_mutex_t mutex
    pthread_cond_t work
    pthread_t threads[N_THREADS_MAX]
    int32_t n_threads
    int32_t n_resting
    int32_t stopping
    const llamad_table *table
    const void *vocab
    int fd
    Text *first           # waiting, in order
    Text *last
    Text *done            # in no order
    Text *done_last


cdef void _tokenize(Pool *pool, Text *text) noexcept nogil:
    cdef int32_t n_max = text.n_chars + 8, n = -n_max
    while n < 0 and n != INT32_MIN:
        n_max = max(n_max, -n)
        free(text.tokens)
        text.tokens = <int32_t *>malloc(<size_t>n_max * sizeof(int32_t))
        if text.tokens == NULL:
            n = INT32_MIN
            break
        n = pool.table.tokenize(pool.vocab, text.chars, text.n_chars, text.tokens, n_max, text.add_special,
                                text.parse_special)
    text.n_tokens = n


cdef void *_thread_main(void *arg) noexcept nogil:
    cdef Pool *pool = <Pool *>arg
    cdef Text *text
    pthread_mutex_lock(&pool.mutex)
    while True:
        while pool.first == NULL and not pool.stopping:
            pool.n_resting += 1
            pthread_cond_wait(&pool.work, &pool.mutex)
            pool.n_resting -= 1
        if pool.stopping:
            break
        text = pool.first
        pool.first = text.next
        if pool.first == NULL:
            pool.last = NULL
        pthread_mutex_unlock(&pool.mutex)
        _tokenize(pool, text)
        pthread_mutex_lock(&pool.mutex)
        text.next = NULL
        if pool.done == NULL:
            pool.done = pool.done_last = text
            wake_send(pool.fd)
        else:
            pool.done_last.next = text
            pool.done_last = text
    pthread_mutex_unlock(&pool.mutex)
    return NULL


cdef void _free_text(Text *text):
    Py_DECREF(<object>text.bytes)
    Py_DECREF(<object>text.callback)
    free(text.tokens)
    free(text)


cdef void _free_all(Text *text):
    cdef Text *next
    while text != NULL:
        next = text.next
        _free_text(text)
        text = next


cdef class Tokenizing:
    """Texts to tokens beside the event loop. When `fd` is readable, call poll()."""

    cdef Pool *pool
    cdef Vocab vocab

    def __cinit__(self, vocab: Vocab, n_threads: int) -> None:
        cdef Pool *pool = <Pool *>calloc(1, sizeof(Pool))
        if pool == NULL:
            raise MemoryError()
        self.pool = pool
        self.vocab = vocab
        pthread_mutex_init(&pool.mutex, NULL)
        pthread_cond_init(&pool.work, NULL)
        pool.table = vocab.table
        pool.vocab = vocab.handle
        pool.fd = wake_open()
        if pool.fd < 0:
            raise OSError("eventfd: no descriptors left")
        while pool.n_threads < min(<int32_t>n_threads, <int32_t>N_THREADS_MAX):
            if pthread_create(&pool.threads[pool.n_threads], NULL, _thread_main, pool) != 0:
                break
            pool.n_threads += 1
        if pool.n_threads == 0:
            raise OSError("no thread can be started")

    @property
    def fd(self) -> int:
        return self.pool.fd

    def submit(self, text: bytes, add_special: bool, parse_special: bool, callback) -> None:
        """callback(token ids as int32s in bytes, or None where the text cannot be tokenized) comes from poll()."""
        cdef Pool *pool = self.pool
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
        pthread_mutex_lock(&pool.mutex)
        if pool.last == NULL:
            pool.first = item
        else:
            pool.last.next = item
        pool.last = item
        if pool.n_resting > 0:
            pthread_cond_signal(&pool.work)
        pthread_mutex_unlock(&pool.mutex)

    def poll(self) -> int:
        """Hands out what is done; returns how many."""
        cdef Pool *pool = self.pool
        cdef Text *text
        cdef Text *next
        cdef int n = 0
        wake_clear(pool.fd)
        pthread_mutex_lock(&pool.mutex)
        text = pool.done
        pool.done = pool.done_last = NULL
        pthread_mutex_unlock(&pool.mutex)
        while text != NULL:
            next = text.next
            callback = <object>text.callback
            found = (PyBytes_FromStringAndSize(<char *>text.tokens, text.n_tokens * <Py_ssize_t>sizeof(int32_t))
                     if text.n_tokens >= 0 else None)
            _free_text(text)
            text = next
            n += 1
            try:
                callback(found)
            except Exception:  # the others want theirs
                log.exception("the answer to a tokenized text failed")
        return n

    def __dealloc__(self) -> None:
        cdef Pool *pool = self.pool
        cdef int32_t i
        if pool == NULL:
            return
        with nogil:
            pthread_mutex_lock(&pool.mutex)
            pool.stopping = 1
            pthread_cond_broadcast(&pool.work)
            pthread_mutex_unlock(&pool.mutex)
            for i in range(pool.n_threads):
                pthread_join(pool.threads[i], NULL)
        _free_all(pool.first)
        _free_all(pool.done)
        pthread_cond_destroy(&pool.work)
        pthread_mutex_destroy(&pool.mutex)
        if pool.fd >= 0:
            close(pool.fd)
        free(pool)
