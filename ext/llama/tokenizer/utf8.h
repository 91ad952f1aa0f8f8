/* Owns: the rules of UTF-8. Pure functions, any thread; C and C++. */
#ifndef LLAMAD_UTF8_H
#define LLAMAD_UTF8_H

#include <stddef.h>

/* Returns the length of the character at p, which is before end. If there is no valid character, *valid becomes 0 and
 * the length is that of the bytes that one U+FFFD replaces (the longest prefix of a valid character). */
static inline size_t utf8_length(const unsigned char *p, const unsigned char *end, int *valid) {
    unsigned char low = 0x80, high = 0xBF;
    size_t n, i;
    *valid = 1;
    if (*p < 0x80) return 1;
    if (*p >= 0xC2 && *p <= 0xDF) n = 2;
    else if (*p >= 0xE0 && *p <= 0xEF) n = 3;
    else if (*p >= 0xF0 && *p <= 0xF4) n = 4;
    else n = 0;
    if (*p == 0xE0) low = 0xA0;       /* overlong forms */
    else if (*p == 0xED) high = 0x9F; /* surrogates */
    else if (*p == 0xF0) low = 0x90;
    else if (*p == 0xF4) high = 0x8F; /* beyond Unicode */
    for (i = 1; i < n; i++) {
        if (p + i == end || p[i] < low || p[i] > high) break;
        low = 0x80;
        high = 0xBF;
    }
    *valid = n > 0 && i == n;
    return i;
}

static inline int utf8_is_valid(const char *bytes, size_t n) {
    const unsigned char *p = (const unsigned char *) bytes, *end = p + n;
    int valid = 1;
    while (p < end && valid) p += utf8_length(p, end, &valid);
    return valid;
}

#endif
