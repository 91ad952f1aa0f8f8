# Owns: the scan for stop strings in text that is not sent yet. Runs on the engine thread.
#
# A stop string always lies completely in the buffer. If a part of it had been sent, that part would have been a prefix
# of a stop string at the end of the text, and such prefixes are held back.
from libc.stdint cimport int32_t
from libc.string cimport memchr, memcmp, memcpy

from llamad.tokenizer.detokenizer cimport Text, utf8_held


cdef int32_t _find(const char *bytes, int32_t n, const char *word, int32_t n_word) noexcept nogil:
    cdef int32_t at = 0
    cdef const char *hit
    while at + n_word <= n:
        hit = <const char *>memchr(bytes + at, word[0], <size_t>(n - n_word - at + 1))
        if hit == NULL:
            return -1
        if memcmp(hit, word, <size_t>n_word) == 0:
            return <int32_t>(hit - bytes)
        at = <int32_t>(hit - bytes) + 1
    return -1


cdef int32_t _overlap(const char *bytes, int32_t n, const char *word, int32_t n_word) noexcept nogil:
    """Return how many bytes at the end of `bytes` are a proper prefix of `word`."""
    cdef int32_t k = n_word - 1 if n_word - 1 < n else n
    while k > 0:
        if memcmp(bytes + n - k, word, <size_t>k) == 0:
            return k
        k -= 1
    return 0


cdef int32_t stops_scan(Text *text, const char *stops, int32_t n_stop) noexcept nogil:
    """Move n_safe forward. Return the index of the stop string that was found, or -1. If one was found, the text ends
    before it and all of it is safe. The earliest stop string wins; of two at the same place, the first in the list."""
    cdef const char *fresh = text.bytes + text.n_safe
    cdef int32_t n = text.n_bytes - text.n_safe
    cdef int32_t stop = -1, stop_at = 0, at, _, i, n_word, held
    cdef const char *word = stops
    for i in range(n_stop):
        memcpy(&n_word, word, sizeof(int32_t))
        word += sizeof(int32_t)
        at = _find(fresh, n, word, n_word)
        if at >= 0 and (stop < 0 or at < stop_at):
            stop = i
            stop_at = at
        word += n_word
    if stop >= 0:
        text.n_bytes = text.n_safe + stop_at
        text.n_safe = text.n_bytes
        return stop
    held = utf8_held(fresh, n)
    word = stops
    for _ in range(n_stop):
        memcpy(&n_word, word, sizeof(int32_t))
        word += sizeof(int32_t)
        at = _overlap(fresh, n, word, n_word)
        if at > held:
            held = at
        word += n_word
    text.n_safe = text.n_bytes - held
    return -1
