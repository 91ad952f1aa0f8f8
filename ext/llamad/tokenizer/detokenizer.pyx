# Owns: the buffer of generated text that is not sent yet, in which split characters are held back (stop_strings.pyx
# holds back stop strings). Runs on the engine thread. Never decodes to Python text.
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove, memset

cdef enum:
    BYTES_START = 16384
    TOKENS_START = 4096


cdef int text_init(Text *text) noexcept nogil:
    """Return 0, or -1 if memory ran out."""
    memset(text, 0, sizeof(Text))
    text.bytes = <char *>malloc(BYTES_START)
    text.tokens = <int32_t *>malloc(TOKENS_START * sizeof(int32_t))
    text.starts = <int32_t *>malloc(TOKENS_START * sizeof(int32_t))
    text.bytes_max = BYTES_START
    text.tokens_max = TOKENS_START
    return 0 if text.bytes != NULL and text.tokens != NULL and text.starts != NULL else -1


cdef void text_free(Text *text) noexcept nogil:
    free(text.bytes)
    free(text.tokens)
    free(text.starts)
    text.bytes = NULL
    text.tokens = text.starts = NULL


cdef void text_clear(Text *text) noexcept nogil:
    text.n_bytes = text.n_safe = text.n_tokens = text.n_lined = text.end = 0
    text.indent = -1


cdef int _grow(Text *text, int32_t n_piece) noexcept nogil:
    cdef void *more
    if text.n_bytes + n_piece > text.bytes_max:
        more = realloc(text.bytes, <size_t>(2 * text.bytes_max + n_piece))
        if more == NULL:
            return -1
        text.bytes = <char *>more
        text.bytes_max = 2 * text.bytes_max + n_piece
    if text.n_tokens == text.tokens_max:
        more = realloc(text.tokens, <size_t>(2 * text.tokens_max) * sizeof(int32_t))
        if more == NULL:
            return -1
        text.tokens = <int32_t *>more
        more = realloc(text.starts, <size_t>(2 * text.tokens_max) * sizeof(int32_t))
        if more == NULL:
            return -1
        text.starts = <int32_t *>more
        text.tokens_max *= 2
    return 0


cdef int text_add(Text *text, int32_t token, const char *piece, int32_t n_piece) noexcept nogil:
    """Append a token's text. Return 0, or -1 if memory ran out."""
    if _grow(text, n_piece) < 0:
        return -1
    memcpy(text.bytes + text.n_bytes, piece, <size_t>n_piece)
    text.tokens[text.n_tokens] = token
    text.starts[text.n_tokens] = text.n_bytes
    text.n_bytes += n_piece
    text.end = text.n_bytes
    text.n_tokens += 1
    return 0


cdef int32_t utf8_held(const char *bytes, int32_t n) noexcept nogil:
    """Return how many bytes at the end belong to a character that may still be completed."""
    cdef int32_t back = 1, need
    cdef uint8_t lead, second
    while back <= 3 and back <= n:
        lead = <uint8_t>bytes[n - back]
        if lead >= 0xC0:
            need = 2 if lead < 0xE0 else (3 if lead < 0xF0 else 4)
            if lead < 0xC2 or lead > 0xF4 or back >= need:
                return 0
            if back >= 2:
                # The second byte's range is narrower after some leads; outside it the bytes are never valid.
                second = <uint8_t>bytes[n - back + 1]
                if (lead == 0xE0 and second < 0xA0) or (lead == 0xED and second > 0x9F) or (
                        lead == 0xF0 and second < 0x90) or (lead == 0xF4 and second > 0x8F):
                    return 0
            return back
        if lead < 0x80:
            return 0
        back += 1
    return 0


cdef void text_finish(Text *text) noexcept nogil:
    """Release everything that was held back, because no more text comes."""
    text.n_safe = text.n_bytes


cdef int32_t text_ready(const Text *text) noexcept nogil:
    """Return how many tokens may be sent: those with some safe text, and those without text before them. A token whose
    whole text is held back, or was cut off with a stop string, is not included."""
    cdef int32_t i, end
    for i in range(text.n_tokens):
        end = text.starts[i + 1] if i + 1 < text.n_tokens else text.end
        if text.starts[i] >= text.n_safe and (end > text.n_safe or text.starts[i] > text.n_safe):
            return i
    return text.n_tokens


cdef int text_cut_line(Text *text, int32_t n_indent) noexcept nogil:
    """Return 1 if a line of the safe text, except the first, is indented by less than n_indent. The text then ends
    after that line's blanks."""
    cdef int32_t i
    cdef char c
    for i in range(text.n_lined, text.n_safe):
        c = text.bytes[i]
        if text.indent >= 0:
            if c == 32 or c == 9:
                text.indent += 1
                continue
            if text.indent < n_indent:
                text.n_bytes = text.n_safe = text.n_lined = i
                return 1
        text.indent = 0 if c == 10 else -1
    text.n_lined = text.n_safe
    return 0


cdef void text_sent(Text *text, int32_t n_tokens) noexcept nogil:
    """Remove the safe bytes and the first n_tokens tokens, which have been sent."""
    cdef int32_t i
    memmove(text.bytes, text.bytes + text.n_safe, <size_t>(text.n_bytes - text.n_safe))
    text.n_tokens -= n_tokens
    for i in range(text.n_tokens):
        text.tokens[i] = text.tokens[i + n_tokens]
        text.starts[i] = text.starts[i + n_tokens] - text.n_safe
    text.n_bytes -= text.n_safe
    text.end -= text.n_safe
    text.n_lined = max(0, text.n_lined - text.n_safe)
    text.n_safe = 0
