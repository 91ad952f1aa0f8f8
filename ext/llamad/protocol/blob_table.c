// The table of blobs. It is a list, because there are only a few blobs at a time.
#define _GNU_SOURCE
#include "blobs.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define LARGE ((size_t) 8 << 20)
#define HUGE_MIN ((size_t) 2 << 20)
#define ARENA_BYTES ((off_t) 1 << 60) // a range of addresses of which none is used twice
#define PLACE ((uint64_t) 65536)      // offsets are multiples of the page size of any machine

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static llamad_blob *first;
static uint64_t next_id = PLACE;

static uint8_t *mapped(size_t n, int flags, int fd, uint64_t offset) {
    void *pages = mmap(NULL, n ? n : 1, PROT_READ | PROT_WRITE, flags, fd, (off_t) offset);
    if (pages == MAP_FAILED) return NULL;
    if (n >= HUGE_MIN) (void) madvise(pages, n, MADV_HUGEPAGE);
    return (uint8_t *) pages;
}

static void populate(uint8_t *pages, size_t n) {
#ifdef MADV_POPULATE_WRITE
    if (n) (void) madvise(pages, n, MADV_POPULATE_WRITE); // all pages at once instead of each at its first use
#endif
}

uint8_t *llamad_pages_open(size_t n) {
    uint8_t *pages = mapped(n, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages) populate(pages, n);
    return pages;
}

// Memory to be freed. Half a gigabyte takes tens of milliseconds, for which the event loop and the engine have no time.
typedef struct {
    uint8_t *pages;
    size_t n;
    int arena; // the file whose pages are freed, too; -1: none
    uint64_t offset;
} going;

static void let_go(going it) {
    munmap(it.pages, it.n ? it.n : 1);
    if (it.arena >= 0 && it.n) {
        (void) fallocate(it.arena, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t) it.offset, (off_t) it.n);
    }
}

static void *run_let_go(void *arg) {
    going *it = (going *) arg;
    let_go(*it);
    if (it->arena >= 0) close(it->arena);
    free(it);
    return NULL;
}

static void let_go_soon(going it) {
    pthread_t thread;
    pthread_attr_t detached;
    going *copy = it.n >= LARGE ? (going *) malloc(sizeof *copy) : NULL;
    if (copy) {
        *copy = it;
        // The thread gets a descriptor of its own, because the arena may be closed before it runs.
        if (it.arena >= 0) copy->arena = fcntl(it.arena, F_DUPFD_CLOEXEC, 0);
        pthread_attr_init(&detached);
        pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
        if (pthread_create(&thread, &detached, run_let_go, copy) == 0) return;
        if (copy->arena >= 0) close(copy->arena);
        free(copy);
    }
    let_go(it);
}

void llamad_pages_close(uint8_t *pages, size_t n) { let_go_soon((going){pages, n, -1, 0}); }

int llamad_arena_open(void) {
    int fd = memfd_create("llamad-blobs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    // The file is sealed: an engine has its descriptor, and if it truncated the file, SIGBUS would end the front.
    if (fd >= 0 &&
        (ftruncate(fd, ARENA_BYTES) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void add(llamad_blob *blob) {
    blob->next = first;
    first = blob;
}

// Returns the link to the blob, or to NULL. The caller holds the lock.
static llamad_blob **find(uint64_t id) {
    llamad_blob **link = &first;
    while (*link && (*link)->id != id) link = &(*link)->next;
    return link;
}

llamad_blob *llamad_blob_open(size_t capacity, int arena) {
    llamad_blob *blob = (llamad_blob *) calloc(1, sizeof *blob);
    if (!blob) return NULL;
    pthread_mutex_lock(&lock);
    blob->id = next_id;
    next_id += (capacity / PLACE + 1) * PLACE;
    pthread_mutex_unlock(&lock);
    blob->data = arena >= 0 ? mapped(capacity, MAP_SHARED, arena, blob->id)
                            : mapped(capacity, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!blob->data) {
        free(blob);
        return NULL;
    }
    blob->arena = arena;
    blob->capacity = capacity;
    pthread_mutex_lock(&lock);
    add(blob);
    pthread_mutex_unlock(&lock);
    return blob;
}

static void free_blob(llamad_blob *blob) {
    let_go_soon((going){blob->data, blob->capacity, blob->arena, blob->id});
    free(blob);
}

// Removes the blob with this number from the table, if there is one, and frees it unless it has users.
static void remove_blob(uint64_t id) {
    llamad_blob **link, *blob;
    int is_free = 0;
    pthread_mutex_lock(&lock);
    link = find(id);
    blob = *link;
    if (blob) {
        *link = blob->next;
        blob->is_gone = 1;
        is_free = blob->n_users == 0;
        // The arena's file may be closed before the last user leaves.
        if (!is_free && blob->arena >= 0) blob->arena = fcntl(blob->arena, F_DUPFD_CLOEXEC, 0);
    }
    pthread_mutex_unlock(&lock);
    if (is_free) free_blob(blob);
}

void llamad_blob_close(llamad_blob *blob) { remove_blob(blob->id); }

llamad_blob *llamad_blob_use(uint64_t id) {
    llamad_blob *blob;
    pthread_mutex_lock(&lock);
    blob = *find(id);
    if (blob) blob->n_users += 1;
    pthread_mutex_unlock(&lock);
    return blob;
}

void llamad_blob_leave(llamad_blob *blob) {
    int is_free, arena;
    pthread_mutex_lock(&lock);
    blob->n_users -= 1;
    is_free = blob->is_gone && blob->n_users == 0;
    pthread_mutex_unlock(&lock);
    if (!is_free) return;
    arena = blob->arena;
    free_blob(blob);
    if (arena >= 0) close(arena);
}

llamad_blob *llamad_blob_find(uint64_t id) {
    llamad_blob *blob;
    pthread_mutex_lock(&lock);
    blob = *find(id);
    pthread_mutex_unlock(&lock);
    return blob;
}

void llamad_blob_touch(llamad_blob *blob) {
    const size_t page = (size_t) sysconf(_SC_PAGESIZE);
    size_t at;
#ifdef MADV_POPULATE_WRITE
    if (madvise(blob->data, blob->capacity, MADV_POPULATE_WRITE) == 0) return;
#endif
    for (at = 0; at < blob->capacity; at += page) ((volatile uint8_t *) blob->data)[at] = 0;
}

int llamad_blob_borrow(int fd, uint64_t id, size_t capacity) {
    llamad_blob *blob = (llamad_blob *) calloc(1, sizeof *blob);
    if (!blob) return -1;
    blob->data = mapped(capacity, MAP_SHARED, fd, id);
    if (!blob->data) {
        free(blob);
        return -1;
    }
    populate(blob->data, capacity); // now, so that the engine thread does not do it in a step
    blob->id = id;
    blob->capacity = blob->size = capacity;
    blob->arena = -1;
    pthread_mutex_lock(&lock);
    add(blob);
    pthread_mutex_unlock(&lock);
    return 0;
}

void llamad_blob_give_back(uint64_t id) { remove_blob(id); }
