/* The shared memory of one model's prompt cache in host memory. It outlives the engines of that model.
 *
 * It is a file without a name that the front makes and that only the engines of one model get, one at a time. It begins
 * with a head and a table of rows; each row in use describes an entry, whose bytes have a range of the file of their
 * own. No range is given away twice, and most of the file has no pages: its size is no commitment of memory.
 *
 * A state may have only the cells of its last tokens: the entry that it names in `before` has those of all tokens before
 * them. So prompts that begin in the same way share these entries, and a chain of them is the state of one prompt. An
 * entry is older than those behind it, and used later; none is dropped while there is another behind it.
 *
 * States of sliding windows and recurrent models have an end, which cannot be cut (ses1/pieces.h). There the parts of a
 * chain have only cells, and no prompt can use them without an end, which is an entry of its own: it names the part that
 * has the cell of its last token, which may have those of more tokens and may be newer. Parts without an end behind them
 * are dropped.
 *
 * Only the engine writes, except for `n_readers`, which counts readers in the front. An entry that is complete is
 * READY: the next engine adopts it, and the front may read it. Whatever else a dying engine leaves is free for the next.
 * While no engine runs, the front may drop entries. Neither side trusts what the other has written:
 * llamad_cache_row_is_sane() comes before any use of a row.
 */
#ifndef LLAMAD_CACHE_MEMORY_H
#define LLAMAD_CACHE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

enum { LLAMAD_CACHE_VERSION = 3, LLAMAD_CACHE_ROWS = 8192, LLAMAD_CACHE_FINGERPRINT = 32 };

/* The state of a row. */
enum {
    LLAMAD_CACHE_FREE = 0,
    LLAMAD_CACHE_OWN = 1,     /* for the engine that made it alone: being written, held, or with media */
    LLAMAD_CACHE_WRITTEN = 2, /* complete; only its checksum is missing */
    LLAMAD_CACHE_READY = 3,
    LLAMAD_CACHE_LEAVING = 4 /* dropped while somebody reads it */
};

/* The kind of an entry. */
enum {
    LLAMAD_CACHE_STATE = 1,      /* SES1: all tokens, and the state of a sequence or of its last tokens */
    LLAMAD_CACHE_CHECKPOINT = 2, /* the part of a state that cannot be truncated, after n_tokens tokens */
    LLAMAD_CACHE_PART = 3,       /* SES1, but without the end of the state */
    LLAMAD_CACHE_END = 4         /* SES1, but only the end of the state */
};

/* Whether the bytes of an entry were checked. Private to an engine. */
enum {
    LLAMAD_CACHE_TRUSTED = 0,
    LLAMAD_CACHE_UNCHECKED = 1, /* from another engine */
    LLAMAD_CACHE_CHECKING = 2,
    LLAMAD_CACHE_BAD = 3
};

typedef struct llamad_cache_row {
    uint32_t state;    /* atomic */
    int32_t n_readers; /* atomic: readers in the front; its pages stay while there are readers */
    uint32_t kind;
    int32_t n_tokens;
    uint64_t id;
    uint64_t at;       /* where its range of the file begins, */
    uint64_t span;     /* how long that is, */
    uint64_t capacity; /* how much of it has pages, */
    uint64_t n_bytes;  /* and how much of that counts */
    uint64_t owner;
    uint64_t adapters_base; /* its AdapterSpan: these numbers come from digests, so they stay valid */
    uint64_t adapters_set;
    int32_t n_base;
    int32_t n_engine_readers; /* atomic: threads of the engine that read it; they end with the engine */
    uint64_t session;
    uint64_t used;       /* when it was last used: now_us(), and larger is later */
    uint64_t checksum;   /* of its n_bytes */
    uint64_t before;     /* a state's or a part's: the id of the entry with the cells of its first tokens, or 0; an
                          * end's: the id of the entry with the cell of its last token; a checkpoint's:
                          * llamad_cache_prefix() of the tokens after which it was made */
    int32_t retention_s; /* what the client said about the prompt: prompt_value.pxd */
    int32_t n_returns;   /* how often its conversation went on */
} llamad_cache_row;

typedef struct llamad_cache_head {
    uint64_t magic;
    uint32_t version;
    uint32_t n_rows;
    uint64_t next_at; /* no range begins here or later */
    uint64_t last_id;
    uint64_t last_used;
    uint8_t fingerprint[LLAMAD_CACHE_FINGERPRINT]; /* of the model and the settings that the entries depend on */
} llamad_cache_head;

/* What one process knows of a row. */
typedef struct llamad_cache_place {
    uint8_t *data; /* its range, mapped; NULL: it is not */
    uint64_t span;
    int32_t trust; /* atomic */
    int32_t begin; /* how many tokens of a state are in the entries before it */
} llamad_cache_place;

typedef struct llamad_cache {
    int fd;
    llamad_cache_head *head;
    llamad_cache_row *rows;
    llamad_cache_place *places;
    int32_t n_leaving; /* rows that wait for their readers */
    int32_t news;      /* changes when the thread that tends the memory has something to do (a futex) */
    int32_t is_tended; /* there is such a thread */
    int32_t n_bad;     /* atomic: entries that were dropped because their bytes were wrong */
} llamad_cache;

/* Returns the descriptor of a new memory without entries, or -1. */
int llamad_cache_create(void);
/* Maps a memory, and returns 0; -1 if it is none, or there is no address space. The descriptor stays open after it. */
int llamad_cache_open(llamad_cache *cache, int fd);
void llamad_cache_close(llamad_cache *cache);

uint64_t llamad_cache_checksum(const uint8_t *data, size_t n);
/* The hash of a sequence's first tokens. It begins with 0 tokens and goes on by one. */
uint64_t llamad_cache_prefix(uint64_t hash, int32_t token);

/* Copies a row that other processes may change. Returns whether it is in this state and can be as it says. */
int llamad_cache_row_is_sane(const llamad_cache *cache, int32_t row, uint32_t state, llamad_cache_row *copy);

/* Any process: keeps the entry's pages until llamad_cache_unpin(). Returns its row, or -1 if it is not READY. */
int32_t llamad_cache_pin(llamad_cache *cache, uint64_t id);
void llamad_cache_unpin(llamad_cache *cache, int32_t row);
/* Drops what an engine has left half-written and the longest unused READY entries until at most n_bytes are left, and
 * returns how many are. Only while no engine runs. Many pages do not keep the caller. */
uint64_t llamad_cache_shrink(llamad_cache *cache, uint64_t n_bytes);
/* Returns the bytes that have pages. */
uint64_t llamad_cache_resident(const llamad_cache *cache);

/* The engine's, on the thread that owns the cache. */

/* Takes over what another engine has left: maps the READY rows, which are UNCHECKED then, and frees all others, those
 * that lack an entry before them, and parts that no end needs. Returns how many there are. With another fingerprint,
 * nothing is taken over. */
int32_t llamad_cache_adopt(llamad_cache *cache, const uint8_t *fingerprint);
/* Returns a row of its own with pages for n bytes, or -1. If `old` is not -1, that row is dropped, and its pages are
 * used if that is possible: new ones are slower to write to. */
int32_t llamad_cache_take(llamad_cache *cache, size_t n, int32_t old);
/* The same, but pages that are missing come with llamad_cache_populate(), which may run on another thread. */
int32_t llamad_cache_reserve(llamad_cache *cache, size_t n, int32_t old);
/* Makes a row of its own a new one with the same bytes, so that it is newer than all others. */
void llamad_cache_renew(llamad_cache *cache, int32_t row);
int llamad_cache_populate(llamad_cache *cache, int32_t row, size_t n);
/* Lets others have the entry, which is complete. */
void llamad_cache_publish(llamad_cache *cache, int32_t row);
void llamad_cache_drop(llamad_cache *cache, int32_t row);
/* Frees what was dropped and has no readers any more. */
void llamad_cache_sweep(llamad_cache *cache);
/* Notes that the entry was used. */
void llamad_cache_use(llamad_cache *cache, int32_t row);
/* Before llama.cpp reads an entry, and after it: should that end the engine, the next one does not try it again. The
 * first returns what the second takes. */
uint32_t llamad_cache_risk(llamad_cache *cache, int32_t row);
void llamad_cache_survive(llamad_cache *cache, int32_t row, uint32_t state);

/* Any thread of the engine: computes the checksum of an entry that has none, so that it is READY. Returns whether there
 * was one. */
int llamad_cache_sign(llamad_cache *cache);

#endif
