/* Owns: reading JSON where no Python is at hand or none should be made. A strict subset: whatever is not in it is refused,
 * and somebody else reads it instead, so that nothing here needs an error message. Pure functions, any thread. */
#ifndef LLAMAD_JSON_H
#define LLAMAD_JSON_H

#include <stdint.h>
#include <string.h>

#include "utf8.h"

typedef struct Reader {
    const unsigned char *at;
    const unsigned char *end;
} Reader;

static inline void skip_blank(Reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r')) r->at++;
}

/* Past these very bytes; 0 if others come. */
static inline int take(Reader *r, const char *text) {
    size_t n = strlen(text);
    if ((size_t) (r->end - r->at) < n || memcmp(r->at, text, n) != 0) return 0;
    r->at += n;
    return 1;
}

static inline int take_flag(Reader *r, int *value) {
    if (take(r, "true")) return *value = 1;
    *value = 0;
    return take(r, "false");
}

static inline int read_hex4(Reader *r, uint32_t *code) {
    int i;
    *code = 0;
    if (r->end - r->at < 4) return 0;
    for (i = 0; i < 4; i++) {
        unsigned char c = *r->at++;
        uint32_t digit;
        if (c >= '0' && c <= '9') digit = c - '0';
        else if ((c | 32) >= 'a' && (c | 32) <= 'f') digit = (c | 32) - 'a' + 10;
        else return 0;
        *code = *code * 16 + digit;
    }
    return 1;
}

static inline char *put_utf8(char *to, uint32_t code) {
    if (code < 0x80) {
        *to++ = (char) code;
    } else if (code < 0x800) {
        *to++ = (char) (0xC0 | code >> 6);
        *to++ = (char) (0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
        *to++ = (char) (0xE0 | code >> 12);
        *to++ = (char) (0x80 | (code >> 6 & 0x3F));
        *to++ = (char) (0x80 | (code & 0x3F));
    } else {
        *to++ = (char) (0xF0 | code >> 18);
        *to++ = (char) (0x80 | (code >> 12 & 0x3F));
        *to++ = (char) (0x80 | (code >> 6 & 0x3F));
        *to++ = (char) (0x80 | (code & 0x3F));
    }
    return to;
}

/* Behind a backslash. Returns the new end of the text, or NULL. Half a surrogate pair is refused. */
static inline char *read_escape(Reader *r, char *to) {
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    uint32_t code, second;
    const char *found;
    if (r->at == r->end) return NULL;
    if (*r->at != 'u') {
        found = *r->at ? strchr(from, *r->at) : NULL;
        if (found == NULL) return NULL;
        r->at++;
        *to++ = into[found - from];
        return to;
    }
    r->at++;
    if (!read_hex4(r, &code) || (code >= 0xDC00 && code <= 0xDFFF)) return NULL;
    if (code >= 0xD800 && code <= 0xDBFF) {
        if (!take(r, "\\u") || !read_hex4(r, &second) || second < 0xDC00 || second > 0xDFFF) return NULL;
        code = 0x10000 + ((code - 0xD800) << 10) + (second - 0xDC00);
    }
    return put_utf8(to, code);
}

/* A string into `out`, which has room for as many bytes as are left to read: no escape grows. */
static inline int read_string(Reader *r, char *out, size_t *n_out) {
    char *to = out;
    if (!take(r, "\"")) return 0;
    while (r->at < r->end) {
        unsigned char c = *r->at;
        if (c == '"') {
            r->at++;
            *n_out = (size_t) (to - out);
            return 1;
        }
        if (c == '\\') {
            r->at++;
            to = read_escape(r, to);
            if (to == NULL) return 0;
        } else if (c < 0x20) {
            return 0;
        } else {
            int valid;
            size_t n = utf8_length(r->at, r->end, &valid);
            if (!valid) return 0;
            memcpy(to, r->at, n);
            to += n;
            r->at += n;
        }
    }
    return 0;
}

/* A whole number of at most ten digits, below the limit. Returns it, or -1. */
static inline int64_t read_whole(Reader *r, int64_t limit) {
    const unsigned char *start = r->at;
    int64_t n = 0;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9' && r->at - start < 10) n = n * 10 + (*r->at++ - '0');
    return r->at == start || (*start == '0' && r->at - start > 1) || n >= limit ? -1 : n;
}

/* [1, 2, 3]: ids below n_vocab, one at least and n_max at most. Returns how many, or -1. */
static inline int32_t read_ids(Reader *r, int32_t n_vocab, int32_t *ids, int32_t n_max) {
    int32_t n = 0;
    if (!take(r, "[")) return -1;
    for (;;) {
        int64_t id;
        skip_blank(r);
        id = read_whole(r, n_vocab);
        if (id < 0 || n == n_max) return -1;
        ids[n++] = (int32_t) id;
        skip_blank(r);
        if (take(r, "]")) return n;
        if (!take(r, ",")) return -1;
    }
}

#endif
