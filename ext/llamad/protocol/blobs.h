/* Memory by number: what is too large for a ring crosses as one. Any thread; the lock is held for a few comparisons. */
#ifndef LLAMAD_BLOBS_H
#define LLAMAD_BLOBS_H

#include <stddef.h>
#include <stdint.h>

typedef struct llamad_blob {
    uint64_t id;
    uint8_t *data;
    size_t capacity;
    size_t size; /* bytes that count */
    struct llamad_blob *next;
} llamad_blob;

/* Plain pages, ready to be written to; NULL without address space. Closing many does not keep the caller. */
uint8_t *llamad_pages_open(size_t n);
void llamad_pages_close(uint8_t *pages, size_t n);

/* Pages come with their first use; NULL without address space. */
llamad_blob *llamad_blob_open(size_t capacity);
void llamad_blob_close(llamad_blob *blob);
/* NULL: no such number. Whoever gave the number away keeps the blob until it is answered. */
llamad_blob *llamad_blob_find(uint64_t id);
/* So that the pages are there before the engine writes to them. */
void llamad_blob_touch(llamad_blob *blob);

#endif
