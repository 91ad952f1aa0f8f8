/* Owns: the bodies that the express lane reads and writes. Whatever json.h does not read is the event loop's. Pure
 * functions, any thread. */
#ifndef LLAMAD_EXPRESS_TEXT_H
#define LLAMAD_EXPRESS_TEXT_H

#include "llamad/json.h"

typedef struct TokenizeBody {
    size_t n_content; /* bytes of UTF-8 in the caller's buffer */
    int add_special;
    int parse_special;
} TokenizeBody;

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
    int32_t n;
    skip_blank(&r);
    if (!take(&r, "{")) return -1;
    skip_blank(&r);
    if (!take(&r, "\"tokens\"")) return -1;
    skip_blank(&r);
    if (!take(&r, ":")) return -1;
    skip_blank(&r);
    n = read_ids(&r, n_vocab, ids, (int32_t) (n_body / 2)); /* a body has BODY_MAX bytes at most */
    if (n < 0) return -1;
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
