/* Memory by number, for data that is too large for a ring. Any thread; the lock is held for a few comparisons.
 *
 * An arena is a file without a name that the front shares with the engines of one model. Each blob in it has its own
 * place, which is its number. An engine has the arena's descriptor and maps the blobs that it is lent; it can reach no
 * blob of another model. A blob without an arena is memory of this process alone.
 */
#ifndef LLAMAD_BLOBS_H
#define LLAMAD_BLOBS_H

#include <stddef.h>
#include <stdint.h>

typedef struct llamad_blob {
    uint64_t id;
    uint8_t *data;
    size_t capacity;
    size_t size; /* bytes that count, to whoever opened it */
    int arena;   /* the descriptor of the file that it lies in, if this process made it there; else -1 */
    int n_users; /* threads that keep it */
    int is_gone; /* its number is unknown; the last user frees it */
    struct llamad_blob *next;
} llamad_blob;

/* Plain pages of this process, ready to be written to; NULL without address space. Closing many does not keep the
 * caller. */
uint8_t *llamad_pages_open(size_t n);
void llamad_pages_close(uint8_t *pages, size_t n);

/* Returns the descriptor of a new arena, or -1. */
int llamad_arena_open(void);

/* Returns a blob in the arena, or one of this process alone if that is -1; NULL without memory or address space. Pages
 * come with their first use. The arena must stay open until the blob is closed. */
llamad_blob *llamad_blob_open(size_t capacity, int arena);
void llamad_blob_close(llamad_blob *blob);
/* NULL: no such number. Whoever gave the number away keeps the blob until it is answered. */
llamad_blob *llamad_blob_find(uint64_t id);
/* The same for a thread that may still read the blob after that: it stays until llamad_blob_leave(). */
llamad_blob *llamad_blob_use(uint64_t id);
void llamad_blob_leave(llamad_blob *blob);
/* So that the pages are there before the engine writes to them. */
void llamad_blob_touch(llamad_blob *blob);

/* The engine's: maps a blob of another process's arena under its number, and forgets it. 0, or -1. */
int llamad_blob_borrow(int arena, uint64_t id, size_t capacity);
void llamad_blob_give_back(uint64_t id);

#endif
