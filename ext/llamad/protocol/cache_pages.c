// The pages of a cache memory, and checksums over them.
#define _GNU_SOURCE
#include "cache_pages.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cache_memory.h"

#define LARGE ((uint64_t) 8 << 20) // freeing more than this takes milliseconds

uint64_t llamad_pages_round(uint64_t n) {
    const uint64_t page = (uint64_t) sysconf(_SC_PAGESIZE);
    return (n + page - 1) / page * page;
}

uint8_t *llamad_pages_map(int fd, uint64_t at, uint64_t n) {
    void *data = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t) at);
    if (data == MAP_FAILED) return NULL;
    (void) madvise(data, n, MADV_HUGEPAGE); // if the system has them for shared memory
    return (uint8_t *) data;
}

int llamad_pages_fill(int fd, uint8_t *data, uint64_t at, uint64_t n) {
#ifdef MADV_POPULATE_WRITE
    if (madvise(data, n, MADV_POPULATE_WRITE) == 0) return 0;
    if (errno != EINVAL) return -1;
#endif
    return fallocate(fd, 0, (off_t) at, (off_t) n) == 0 ? 0 : -1;
}

void llamad_pages_punch(int fd, uint64_t at, uint64_t n) {
    if (n) (void) fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t) at, (off_t) n);
}

typedef struct {
    int fd;
    uint8_t *data;
    uint64_t span, at, n;
} going;

static void drop_now(const going *it) {
    if (it->data) munmap(it->data, it->span);
    llamad_pages_punch(it->fd, it->at, it->n);
}

static void *run_drop(void *arg) {
    going *it = (going *) arg;
    drop_now(it);
    close(it->fd);
    free(it);
    return NULL;
}

void llamad_pages_drop(int fd, uint8_t *data, uint64_t span, uint64_t at, uint64_t n) {
    going it = {fd, data, span, at, n}, *copy = n >= LARGE ? (going *) malloc(sizeof *copy) : NULL;
    pthread_t thread;
    pthread_attr_t detached;
    if (copy) {
        *copy = it;
        // The thread gets a descriptor of its own, because the memory may be closed before it runs.
        copy->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        pthread_attr_init(&detached);
        pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
        if (copy->fd >= 0 && pthread_create(&thread, &detached, run_drop, copy) == 0) return;
        if (copy->fd >= 0) close(copy->fd);
        free(copy);
    }
    drop_now(&it);
}

static uint64_t word(const uint8_t *data) {
    uint64_t value;
    memcpy(&value, data, sizeof value);
    return value;
}

static uint64_t turned(uint64_t x, int n) { return x << n | x >> (64 - n); }

// Four independent sums, so that the processor computes them side by side. It finds damage, not forgery.
uint64_t llamad_cache_checksum(const uint8_t *data, size_t n) {
    const uint64_t odd[4] = {0x9e3779b97f4a7c15u, 0xc2b2ae3d27d4eb4fu, 0xd6e8feb86659fd93u, 0xa0761d6478bd642fu};
    uint64_t sum[4] = {n, ~(uint64_t) n, odd[0] ^ n, odd[1] ^ n};
    uint64_t all;
    uint8_t last[32] = {0};
    size_t at = 0;
    int i;
    for (; at + sizeof last <= n; at += sizeof last) {
        for (i = 0; i < 4; i++) sum[i] = turned((sum[i] ^ word(data + at + 8 * i)) * odd[i], 29);
    }
    if (at < n) memcpy(last, data + at, n - at);
    for (i = 0; i < 4; i++) sum[i] = turned((sum[i] ^ word(last + 8 * i)) * odd[i], 29);
    all = odd[2];
    for (i = 0; i < 4; i++) {
        all = (all ^ sum[i] ^ sum[i] >> 32) * odd[3];
        all ^= all >> 29;
    }
    return all;
}

uint64_t llamad_cache_prefix(uint64_t hash, int32_t token) {
    if (hash == 0) hash = 0xcbf29ce484222325u;
    hash = (hash ^ (uint32_t) token) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}
