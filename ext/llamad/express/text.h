/* Owns: the JSON that the express lane reads and writes. A strict subset: whatever is not in it is refused, and the
 * event loop reads it instead, so that nothing here needs an error message. Pure functions, any thread. */
#ifndef LLAMAD_EXPRESS_TEXT_H
#define LLAMAD_EXPRESS_TEXT_H

#include <stdint.h>
#include <string.h>

#include "utf8.h"

typedef struct Reader {
    const unsigned char *at;
    const unsigned char *end;
} Reader;

typedef struct TokenizeBody {
    size_t n_content; /* bytes of UTF-8 in the caller's buffer */
    int add_special;
    int parse_special;
} TokenizeBody;

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

/* {"content": "...", "add_special": true, "parse_special": true, "with_pieces": false}: each at most once, in any
 * order, and the content always. */
static inline int read_tokenize(const char *body, size_t n_body, TokenizeBody *found, char *content) {
    Reader r = {(const unsigned char *) body, (const unsigned char *) body + n_body};
    int has_content = 0, has_add = 0, has_parse = 0, has_pieces = 0, with_pieces = 0;
    found->add_special = 0;
    found->parse_special = 1;
    skip_blank(&r);
    if (!take(&r, "{")) return 0;
    for (;;) {
        int ok;
        skip_blank(&r);
        if (take(&r, "\"content\"")) {
            skip_blank(&r);
            if (has_content++ || !take(&r, ":")) return 0;
            skip_blank(&r);
            ok = read_string(&r, content, &found->n_content);
        } else {
            int *value, *has;
            if (take(&r, "\"add_special\"")) value = &found->add_special, has = &has_add;
            else if (take(&r, "\"parse_special\"")) value = &found->parse_special, has = &has_parse;
            else if (take(&r, "\"with_pieces\"")) value = &with_pieces, has = &has_pieces;
            else return 0;
            skip_blank(&r);
            if ((*has)++ || !take(&r, ":")) return 0;
            skip_blank(&r);
            ok = take_flag(&r, value);
        }
        if (!ok) return 0;
        skip_blank(&r);
        if (take(&r, "}")) break;
        if (!take(&r, ",")) return 0;
    }
    skip_blank(&r);
    return r.at == r.end && has_content && !with_pieces;
}

/* {"tokens": [1, 2, 3]} with ids below n_vocab. Returns how many, or -1. `ids` has room for one in two bytes. */
static inline int32_t read_detokenize(const char *body, size_t n_body, int32_t n_vocab, int32_t *ids) {
    Reader r = {(const unsigned char *) body, (const unsigned char *) body + n_body};
    int32_t n = 0;
    skip_blank(&r);
    if (!take(&r, "{")) return -1;
    skip_blank(&r);
    if (!take(&r, "\"tokens\"")) return -1;
    skip_blank(&r);
    if (!take(&r, ":")) return -1;
    skip_blank(&r);
    if (!take(&r, "[")) return -1;
    for (;;) {
        const unsigned char *start;
        int64_t id = 0;
        skip_blank(&r);
        start = r.at;
        while (r.at < r.end && *r.at >= '0' && *r.at <= '9' && r.at - start < 10) id = id * 10 + (*r.at++ - '0');
        if (r.at == start || (*start == '0' && r.at - start > 1) || id >= n_vocab) return -1;
        ids[n++] = (int32_t) id;
        skip_blank(&r);
        if (take(&r, "]")) break;
        if (!take(&r, ",")) return -1;
    }
    skip_blank(&r);
    if (!take(&r, "}")) return -1;
    skip_blank(&r);
    return r.at == r.end ? n : -1;
}

static inline char *put_number(char *to, uint64_t n) {
    char digits[20];
    int i = 20;
    do digits[--i] = (char) ('0' + n % 10);
    while (n /= 10);
    memcpy(to, digits + i, (size_t) (20 - i));
    return to + (20 - i);
}

static inline char *put_text(char *to, const char *text, size_t n) {
    memcpy(to, text, n);
    return to + n;
}

/* The bytes as a JSON string without its quotes, U+FFFD for what is no UTF-8. `to` has room for six times as many. */
static inline char *put_json(char *to, const char *text, size_t n_text) {
    static const char hex[] = "0123456789abcdef";
    const unsigned char *p = (const unsigned char *) text, *end = p + n_text;
    while (p < end) {
        int valid;
        size_t n = utf8_length(p, end, &valid);
        if (!valid) {
            to = put_text(to, "\xEF\xBF\xBD", 3);
        } else if (*p == '"' || *p == '\\') {
            *to++ = '\\';
            *to++ = (char) *p;
        } else if (*p >= 0x20) {
            to = put_text(to, (const char *) p, n);
        } else {
            const char *name = *p == '\n' ? "n" : *p == '\t' ? "t" : *p == '\r' ? "r" : *p == '\b' ? "b" : *p == '\f' ? "f" : "";
            *to++ = '\\';
            if (*name) {
                *to++ = *name;
            } else {
                to = put_text(to, "u00", 3);
                *to++ = hex[*p >> 4];
                *to++ = hex[*p & 15];
            }
        }
        p += n;
    }
    return to;
}

#endif
