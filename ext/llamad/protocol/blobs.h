/* Memory by number: what is too large for a ring crosses as one. Any thread; the lock is held for a few comparisons.
 *
 * All blobs of a front lie in one file without a name (the arena), each at its own place, which is its number. An engine
 * has the arena's descriptor and maps those that it is lent.
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
    int is_lent; /* mapped from another process's arena */
    struct llamad_blob *next;
} llamad_blob;

/* Plain pages of this process, ready to be written to; NULL without address space. Closing many does not keep the
 * caller. */
uint8_t *llamad_pages_open(size_t n);
void llamad_pages_close(uint8_t *pages, size_t n);

/* The arena's descriptor, made on first use; -1: the system gives none. */
int llamad_arena(void);

/* Pages come with their first use; NULL without memory or address space. */
llamad_blob *llamad_blob_open(size_t capacity);
void llamad_blob_close(llamad_blob *blob);
/* NULL: no such number. Whoever gave the number away keeps the blob until it is answered. */
llamad_blob *llamad_blob_find(uint64_t id);
/* So that the pages are there before the engine writes to them. */
void llamad_blob_touch(llamad_blob *blob);

/* The engine's: maps a blob of another process's arena under its number, and forgets it. 0, or -1. */
int llamad_blob_borrow(int arena, uint64_t id, size_t capacity);
void llamad_blob_give_back(uint64_t id);

#endif
