// The table of blobs. Few at a time, so it is a list.
#include "blobs.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define LARGE ((size_t) 8 << 20)
#define HUGE_MIN ((size_t) 2 << 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static llamad_blob *first;
static uint64_t last_id;

static uint8_t *map(size_t n) {
    void *pages = mmap(NULL, n ? n : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return NULL;
    if (n >= HUGE_MIN) (void) madvise(pages, n, MADV_HUGEPAGE);
    return (uint8_t *) pages;
}

uint8_t *llamad_pages_open(size_t n) {
    uint8_t *pages = map(n);
#ifdef MADV_POPULATE_WRITE
    if (pages && n) (void) madvise(pages, n, MADV_POPULATE_WRITE); // many at once; else they come with their first use
#endif
    return pages;
}

// Giving back half a gigabyte takes tens of milliseconds, and it is the event loop or the engine that drops it.
typedef struct {
    uint8_t *pages;
    size_t n;
} going;

static void *unmap(void *arg) {
    going *it = (going *) arg;
    munmap(it->pages, it->n);
    free(it);
    return NULL;
}

void llamad_pages_close(uint8_t *pages, size_t n) {
    pthread_t thread;
    pthread_attr_t detached;
    going *it = n >= LARGE ? (going *) malloc(sizeof *it) : NULL;
    if (it) {
        it->pages = pages;
        it->n = n;
        pthread_attr_init(&detached);
        pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
        if (pthread_create(&thread, &detached, unmap, it) == 0) return;
        free(it);
    }
    munmap(pages, n ? n : 1);
}

llamad_blob *llamad_blob_open(size_t capacity) {
    llamad_blob *blob = (llamad_blob *) calloc(1, sizeof *blob);
    if (!blob) return NULL;
    blob->data = map(capacity);
    if (!blob->data) {
        free(blob);
        return NULL;
    }
    blob->capacity = capacity;
    pthread_mutex_lock(&lock);
    blob->id = ++last_id;
    blob->next = first;
    first = blob;
    pthread_mutex_unlock(&lock);
    return blob;
}

void llamad_blob_close(llamad_blob *blob) {
    llamad_blob **link;
    pthread_mutex_lock(&lock);
    for (link = &first; *link; link = &(*link)->next) {
        if (*link == blob) {
            *link = blob->next;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    llamad_pages_close(blob->data, blob->capacity);
    free(blob);
}

llamad_blob *llamad_blob_find(uint64_t id) {
    llamad_blob *blob;
    pthread_mutex_lock(&lock);
    blob = first;
    while (blob && blob->id != id) blob = blob->next;
    pthread_mutex_unlock(&lock);
    return blob;
}

void llamad_blob_touch(llamad_blob *blob) {
    const size_t page = (size_t) sysconf(_SC_PAGESIZE);
    size_t at;
#ifdef MADV_POPULATE_WRITE
    if (madvise(blob->data, blob->capacity, MADV_POPULATE_WRITE) == 0) return; // many at once
#endif
    for (at = 0; at < blob->capacity; at += page) ((volatile uint8_t *) blob->data)[at] = 0;
}
