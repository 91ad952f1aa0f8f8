/* Owns: one request of the express lane: whether its bytes are the known head, and the answer's bytes. There is no
 * HTTP here: a head is served only if it is, byte for byte, one that the event loop has just served, but for the digits
 * of its Content-Length. Runs on the lane's threads and never blocks; what it does not know is the event loop's. */
#ifndef LLAMAD_EXPRESS_ANSWER_H
#define LLAMAD_EXPRESS_ANSWER_H

#include <stdlib.h>
#include <time.h>

#include "llamad/express/text.h"
#include "table.h"

enum {
    EXPRESS_HEALTH = 1,
    EXPRESS_TOKENIZE = 2,
    EXPRESS_DETOKENIZE = 3,

    HEAD_MAX = 2048,
    BODY_MAX = 16 * 1024,
    IN_MAX = HEAD_MAX + BODY_MAX + 64,
    TOKENS_MAX = 4 * BODY_MAX + 64,
    /* Before an answer's body is room for its head, so that one call sends both. */
    ROOM = 4096,
    ID_PREFIX = 13,
};

typedef struct Piece {
    const char *at;
    size_t n;
} Piece;

/* What the event loop knew of a connection when it lent it: all that follows from its head. */
typedef struct Known {
    int kind;
    int route;         /* which counter */
    int has_length;    /* a POST: Content-Length's digits and the rest of the head come behind `front` */
    Piece front, back; /* of the request's head */
    Piece status;      /* of the answer's head: all before the date */
    Piece headers;     /* and between the date and the body's length */
    Piece peer, shown, key; /* of the access line */
} Known;

/* What the answers come from; never changes. */
typedef struct Source {
    const llamad_table *table;
    const void *vocab;
    int32_t n_vocab;
    int32_t n_slots;
    const void *engine;
    int32_t (*n_idle)(const void *engine); /* negative: the engine has failed */
    void (*note)(const void *engine, int64_t now_us); /* a request was answered */
    size_t body_max;
} Source;

/* One thread's memory. */
typedef struct Desk {
    const Source *source;
    char id[ID_PREFIX + 24]; /* of the request: the thread's prefix and a counter */
    size_t n_id;
    uint64_t n_ids;
    time_t second;
    char date[32];
    char content[BODY_MAX];
    int32_t tokens[TOKENS_MAX];
    char *text; /* detokenized */
    size_t n_text_max;
    char *out; /* ROOM, then the body */
    size_t n_out_max;
    size_t n_body;
} Desk;

enum { MATCH_OTHER = -1, MATCH_MORE = 0, MATCH_WHOLE = 1 };

static inline size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Whether the bytes are the known head with its body and nothing behind it, a beginning of that, or something else. */
static inline int match(const Known *known, const char *data, size_t n, size_t body_max, const char **body,
                        size_t *n_body) {
    const char *at = data, *end = data + n;
    size_t n_digits = 0, length = 0;
    *body = end;
    *n_body = 0;
    if (memcmp(at, known->front.at, least(n, known->front.n)) != 0) return MATCH_OTHER;
    if (n < known->front.n) return MATCH_MORE;
    at += known->front.n;
    if (!known->has_length) return at == end ? MATCH_WHOLE : MATCH_OTHER;
    while (at < end && *at >= '0' && *at <= '9' && n_digits < 6) {
        length = length * 10 + (size_t) (*at++ - '0');
        if (n_digits++ == 0 && length == 0) return MATCH_OTHER;
    }
    if (length > body_max) return MATCH_OTHER;
    if (at == end) return n_digits < 6 ? MATCH_MORE : MATCH_OTHER;
    if (n_digits == 0) return MATCH_OTHER;
    if (memcmp(at, known->back.at, least((size_t) (end - at), known->back.n)) != 0) return MATCH_OTHER;
    if ((size_t) (end - at) < known->back.n) return MATCH_MORE;
    at += known->back.n;
    *body = at;
    *n_body = length;
    if ((size_t) (end - at) > length) return MATCH_OTHER;
    return (size_t) (end - at) == length ? MATCH_WHOLE : MATCH_MORE;
}

static inline int desk_reserve(char **buffer, size_t *n_max, size_t n) {
    char *more;
    if (n <= *n_max) return 1;
    more = (char *) realloc(*buffer, n);
    if (more == NULL) return 0;
    *buffer = more;
    *n_max = n;
    return 1;
}

static inline void desk_new_id(Desk *desk) {
    static const char hex[] = "0123456789abcdef";
    char digits[16];
    uint64_t n = ++desk->n_ids;
    size_t i = 16;
    while (n != 0 || i > 10) {
        digits[--i] = hex[n & 15];
        n >>= 4;
    }
    memcpy(desk->id + ID_PREFIX, digits + i, 16 - i);
    desk->n_id = ID_PREFIX + 16 - i;
}

/* As HTTP writes it: "Thu, 01 Jan 1970 00:00:00 GMT". */
static inline void write_date(char *to, time_t second) {
    static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    struct tm t;
    int year, parts[4], i;
    gmtime_r(&second, &t);
    year = t.tm_year + 1900;
    memcpy(to, "Thu, 01 Jan 1970 00:00:00 GMT", 29);
    memcpy(to, days + 3 * t.tm_wday, 3);
    memcpy(to + 8, months + 3 * t.tm_mon, 3);
    for (i = 3; i >= 0; i--, year /= 10) to[12 + i] = (char) ('0' + year % 10);
    parts[0] = t.tm_mday, parts[1] = t.tm_hour, parts[2] = t.tm_min, parts[3] = t.tm_sec;
    for (i = 0; i < 4; i++) {
        char *at = to + (i == 0 ? 5 : 14 + 3 * i);
        at[0] = (char) ('0' + parts[i] / 10);
        at[1] = (char) ('0' + parts[i] % 10);
    }
}

static inline int body_health(Desk *desk) {
    const Source *source = desk->source;
    int32_t n_idle = source->n_idle(source->engine);
    char *start, *to;
    if (n_idle < 0 || !desk_reserve(&desk->out, &desk->n_out_max, ROOM + 128)) return 0;
    start = to = desk->out + ROOM;
    to = put_text(to, "{\"status\":\"ok\",\"slots_idle\":", 28);
    to = put_number(to, (uint64_t) n_idle);
    to = put_text(to, ",\"slots_processing\":", 20);
    to = put_number(to, (uint64_t) (source->n_slots - n_idle));
    *to++ = '}';
    desk->n_body = (size_t) (to - start);
    return 1;
}

static inline int body_tokenize(Desk *desk, const char *body, size_t n_body) {
    const Source *source = desk->source;
    TokenizeBody found;
    int32_t n, i;
    char *start, *to;
    if (!read_tokenize(body, n_body, &found, desk->content)) return 0;
    n = source->table->tokenize(source->vocab, desk->content, (int32_t) found.n_content, desk->tokens, TOKENS_MAX,
                                found.add_special, found.parse_special);
    if (n < 0 || !desk_reserve(&desk->out, &desk->n_out_max, ROOM + 64 + (size_t) n * 11)) return 0;
    start = to = desk->out + ROOM;
    to = put_text(to, "{\"tokens\":[", 11);
    for (i = 0; i < n; i++) {
        if (i > 0) *to++ = ',';
        to = put_number(to, (uint64_t) desk->tokens[i]);
    }
    to = put_text(to, "]}", 2);
    desk->n_body = (size_t) (to - start);
    return 1;
}

static inline int body_detokenize(Desk *desk, const char *body, size_t n_body) {
    const Source *source = desk->source;
    int32_t n_tokens = read_detokenize(body, n_body, source->n_vocab, desk->tokens), n;
    char *start, *to;
    if (n_tokens < 0 || !desk_reserve(&desk->text, &desk->n_text_max, (size_t) n_tokens * 8 + 64)) return 0;
    n = source->table->detokenize(source->vocab, desk->tokens, n_tokens, desk->text, (int32_t) desk->n_text_max, 0, 1);
    if (n < 0 && n != INT32_MIN) {
        if (!desk_reserve(&desk->text, &desk->n_text_max, (size_t) -n)) return 0;
        n = source->table->detokenize(source->vocab, desk->tokens, n_tokens, desk->text, (int32_t) desk->n_text_max, 0,
                                      1);
    }
    if (n < 0 || !desk_reserve(&desk->out, &desk->n_out_max, ROOM + 64 + (size_t) n * 6)) return 0;
    start = to = desk->out + ROOM;
    to = put_text(to, "{\"content\":\"", 12);
    to = put_json(to, desk->text, (size_t) n);
    to = put_text(to, "\"}", 2);
    desk->n_body = (size_t) (to - start);
    return 1;
}

/* The whole answer in the desk's memory; NULL: the event loop is to answer. */
static inline const char *answer(Desk *desk, const Known *known, const char *body, size_t n_body, size_t *n_answer) {
    static const char length_end[] = "\r\nX-Request-Id: ", end[] = "\r\n\r\n";
    char number[24], *at, *start;
    size_t n_number, n_head;
    time_t now = time(NULL);
    int done = known->kind == EXPRESS_HEALTH      ? body_health(desk)
               : known->kind == EXPRESS_TOKENIZE ? body_tokenize(desk, body, n_body)
                                                 : body_detokenize(desk, body, n_body);
    if (!done) return NULL;
    if (now != desk->second) {
        write_date(desk->date, now);
        desk->second = now;
    }
    desk_new_id(desk);
    n_number = (size_t) (put_number(number, desk->n_body) - number);
    n_head = known->status.n + 29 + known->headers.n + n_number + sizeof length_end - 1 + desk->n_id + sizeof end - 1;
    start = at = desk->out + ROOM - n_head; /* it has room: see lane_lend() */
    at = put_text(at, known->status.at, known->status.n);
    at = put_text(at, desk->date, 29);
    at = put_text(at, known->headers.at, known->headers.n);
    at = put_text(at, number, n_number);
    at = put_text(at, length_end, sizeof length_end - 1);
    at = put_text(at, desk->id, desk->n_id);
    put_text(at, end, sizeof end - 1);
    *n_answer = n_head + desk->n_body;
    return start;
}

#endif
