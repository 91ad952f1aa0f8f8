// The table of a cache memory: which entries there are, and who may read or drop them. cache_memory.h says who may call
// what.
#define _GNU_SOURCE
#include "cache_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../base/system.h"
#include "cache_pages.h"

#define MAGIC UINT64_C(0x31656863616d616c)
#define HEAD_BYTES ((uint64_t) 4096)
#define TABLE_BYTES (HEAD_BYTES + LLAMAD_CACHE_ROWS * sizeof(llamad_cache_row))
#define DATA_AT ((uint64_t) 2 << 20)
#define FILE_BYTES ((uint64_t) 1 << 60)
#define PLACE ((uint64_t) 65536) // offsets are multiples of the page size of any machine

_Static_assert(sizeof(llamad_cache_row) == 128, "rows must not share lines of the processor's cache");
_Static_assert(sizeof(llamad_cache_head) <= HEAD_BYTES && TABLE_BYTES <= DATA_AT, "the table must fit");

static uint32_t state_of(const llamad_cache_row *row) { return __atomic_load_n(&row->state, __ATOMIC_SEQ_CST); }
static void set_state(llamad_cache_row *row, uint32_t state) { __atomic_store_n(&row->state, state, __ATOMIC_SEQ_CST); }
static int has_readers(const llamad_cache_row *row) {
    return __atomic_load_n(&row->n_readers, __ATOMIC_SEQ_CST) > 0 ||
           __atomic_load_n(&row->n_engine_readers, __ATOMIC_SEQ_CST) > 0;
}

// --- the file -------------------------------------------------------------------------------------------------------

int llamad_cache_create(void) {
    const int fd = memfd_create("llamad-cache", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    llamad_cache_head head = {
        .magic = MAGIC, .version = LLAMAD_CACHE_VERSION, .n_rows = LLAMAD_CACHE_ROWS, .next_at = DATA_AT};
    if (fd < 0) return -1;
    // The file is sealed: an engine has its descriptor, and if it truncated the file, SIGBUS would end the front.
    if (ftruncate(fd, (off_t) FILE_BYTES) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
        pwrite(fd, &head, sizeof head, 0) != (ssize_t) sizeof head) {
        close(fd);
        return -1;
    }
    return fd;
}

int llamad_cache_open(llamad_cache *cache, int fd) {
    struct stat about;
    void *table;
    memset(cache, 0, sizeof *cache);
    cache->fd = fd;
    if (fstat(fd, &about) != 0 || (uint64_t) about.st_size != FILE_BYTES) return -1;
    table = mmap(NULL, TABLE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (table == MAP_FAILED) return -1;
    cache->head = (llamad_cache_head *) table;
    cache->rows = (llamad_cache_row *) ((uint8_t *) table + HEAD_BYTES);
    cache->places = (llamad_cache_place *) calloc(LLAMAD_CACHE_ROWS, sizeof *cache->places);
    if (cache->places && cache->head->magic == MAGIC && cache->head->version == LLAMAD_CACHE_VERSION &&
        cache->head->n_rows == LLAMAD_CACHE_ROWS) {
        return 0;
    }
    llamad_cache_close(cache);
    return -1;
}

void llamad_cache_close(llamad_cache *cache) {
    int32_t i;
    for (i = 0; cache->places && i < LLAMAD_CACHE_ROWS; i++) {
        if (cache->places[i].data) munmap(cache->places[i].data, cache->places[i].span);
    }
    free(cache->places);
    if (cache->head) munmap(cache->head, TABLE_BYTES);
    cache->places = NULL;
    cache->head = NULL;
    cache->rows = NULL;
}

uint64_t llamad_cache_resident(const llamad_cache *cache) {
    struct stat about;
    return fstat(cache->fd, &about) == 0 ? (uint64_t) about.st_blocks * 512 : 0;
}

// --- rows -----------------------------------------------------------------------------------------------------------

static int has_range(const llamad_cache_row *row) {
    return row->at >= DATA_AT && row->at < FILE_BYTES && row->at % PLACE == 0 && row->span <= FILE_BYTES - row->at &&
           row->capacity <= row->span;
}

int llamad_cache_row_is_sane(const llamad_cache *cache, int32_t i, uint32_t state, llamad_cache_row *row) {
    if (state_of(&cache->rows[i]) != state) return 0;
    copy_once(row, &cache->rows[i], sizeof *row);
    return has_range(row) && row->n_bytes > 0 && row->n_bytes <= row->capacity && row->n_tokens > 0 &&
           row->kind >= LLAMAD_CACHE_STATE && row->kind <= LLAMAD_CACHE_END &&
           (row->kind == LLAMAD_CACHE_CHECKPOINT || row->n_bytes > 8 + (uint64_t) row->n_tokens * 4);
}

int32_t llamad_cache_pin(llamad_cache *cache, uint64_t id) {
    llamad_cache_row copy;
    int32_t i;
    for (i = 0; i < LLAMAD_CACHE_ROWS; i++) {
        llamad_cache_row *row = &cache->rows[i];
        if (state_of(row) != LLAMAD_CACHE_READY || row->id != id) continue;
        // First the pin, then a second look: whoever drops it changes the state first, and then looks for readers.
        __atomic_fetch_add(&row->n_readers, 1, __ATOMIC_SEQ_CST);
        if (llamad_cache_row_is_sane(cache, i, LLAMAD_CACHE_READY, &copy) && copy.id == id) return i;
        llamad_cache_unpin(cache, i);
    }
    return -1;
}

void llamad_cache_unpin(llamad_cache *cache, int32_t row) {
    __atomic_fetch_sub(&cache->rows[row].n_readers, 1, __ATOMIC_SEQ_CST);
}

static void free_row(llamad_cache *cache, int32_t i) {
    llamad_cache_row *row = &cache->rows[i];
    llamad_cache_place *place = &cache->places[i];
    llamad_pages_drop(cache->fd, place->data, place->span, row->at, row->capacity);
    memset(place, 0, sizeof *place);
    row->id = 0;
    row->n_bytes = row->capacity = 0;
    set_state(row, LLAMAD_CACHE_FREE);
}

void llamad_cache_drop(llamad_cache *cache, int32_t row) {
    set_state(&cache->rows[row], LLAMAD_CACHE_LEAVING);
    if (has_readers(&cache->rows[row])) {
        cache->n_leaving += 1;
    } else {
        free_row(cache, row);
    }
}

void llamad_cache_sweep(llamad_cache *cache) {
    int32_t i;
    for (i = 0; cache->n_leaving && i < LLAMAD_CACHE_ROWS; i++) {
        if (state_of(&cache->rows[i]) == LLAMAD_CACHE_LEAVING && !has_readers(&cache->rows[i])) {
            free_row(cache, i);
            cache->n_leaving -= 1;
        }
    }
}

void llamad_cache_use(llamad_cache *cache, int32_t row) {
    const uint64_t now = (uint64_t) now_us(), next = cache->head->last_used + 1;
    cache->head->last_used = now > next ? now : next;
    cache->rows[row].used = cache->head->last_used;
}

// --- taking and giving ----------------------------------------------------------------------------------------------

void llamad_cache_renew(llamad_cache *cache, int32_t i) {
    llamad_cache_row *row = &cache->rows[i];
    cache->head->last_id += 1;
    row->id = cache->head->last_id;
    row->n_bytes = row->checksum = row->before = row->session = 0;
    row->retention_s = row->n_returns = 0;
    cache->places[i].trust = LLAMAD_CACHE_TRUSTED;
    cache->places[i].begin = 0;
    llamad_cache_use(cache, i);
}

static int32_t reserve_new(llamad_cache *cache, size_t n) {
    llamad_cache_place place = {0};
    llamad_cache_row *row;
    int32_t i = 0;
    if (n > FILE_BYTES / 4) return -1;
    llamad_cache_sweep(cache);
    // A row that somebody is about to pin by an old number is not taken.
    while (i < LLAMAD_CACHE_ROWS && (state_of(&cache->rows[i]) != LLAMAD_CACHE_FREE || has_readers(&cache->rows[i])))
        i++;
    if (i == LLAMAD_CACHE_ROWS) return -1;
    row = &cache->rows[i];
    // The range is twice as long as it must be, so that the state of a conversation can grow in its place.
    place.span = (2 * (uint64_t) n + PLACE - 1) / PLACE * PLACE;
    if (cache->head->next_at > FILE_BYTES - place.span) return -1;
    place.data = llamad_pages_map(cache->fd, cache->head->next_at, place.span);
    if (!place.data) return -1;
    row->at = cache->head->next_at;
    row->span = place.span;
    row->capacity = 0;
    cache->head->next_at += place.span;
    cache->places[i] = place;
    set_state(row, LLAMAD_CACHE_OWN);
    llamad_cache_renew(cache, i);
    return i;
}

int llamad_cache_populate(llamad_cache *cache, int32_t i, size_t n) {
    llamad_cache_row *row = &cache->rows[i];
    const uint64_t capacity = llamad_pages_round(n);
    if (capacity <= row->capacity) return 0;
    if (llamad_pages_fill(cache->fd, cache->places[i].data + row->capacity, row->at + row->capacity,
                          capacity - row->capacity) != 0) {
        return -1;
    }
    row->capacity = capacity;
    return 0;
}

int32_t llamad_cache_reserve(llamad_cache *cache, size_t n, int32_t old) {
    if (old < 0) return reserve_new(cache, n);
    set_state(&cache->rows[old], LLAMAD_CACHE_LEAVING);
    if (has_readers(&cache->rows[old])) {
        cache->n_leaving += 1;
    } else if (n > cache->places[old].span) {
        free_row(cache, old);
    } else {
        set_state(&cache->rows[old], LLAMAD_CACHE_OWN);
        llamad_cache_renew(cache, old);
        return old;
    }
    return reserve_new(cache, n);
}

int32_t llamad_cache_take(llamad_cache *cache, size_t n, int32_t old) {
    const int32_t i = llamad_cache_reserve(cache, n, old);
    if (i < 0 || llamad_cache_populate(cache, i, n) == 0) return i;
    free_row(cache, i);
    return -1;
}

static void tell(llamad_cache *cache) {
    __atomic_fetch_add(&cache->news, 1, __ATOMIC_SEQ_CST);
    if (load_int(&cache->is_tended)) futex_wake_all(&cache->news);
}

void llamad_cache_publish(llamad_cache *cache, int32_t row) {
    set_state(&cache->rows[row], LLAMAD_CACHE_WRITTEN);
    tell(cache);
}

int llamad_cache_sign(llamad_cache *cache) {
    int32_t i;
    for (i = 0; i < LLAMAD_CACHE_ROWS; i++) {
        llamad_cache_row *row = &cache->rows[i];
        uint32_t state = LLAMAD_CACHE_WRITTEN;
        if (state_of(row) != state) continue;
        __atomic_fetch_add(&row->n_engine_readers, 1, __ATOMIC_SEQ_CST);
        if (state_of(row) == state) {
            row->checksum = llamad_cache_checksum(cache->places[i].data, row->n_bytes);
            __atomic_compare_exchange_n(&row->state, &state, LLAMAD_CACHE_READY, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
        }
        __atomic_fetch_sub(&row->n_engine_readers, 1, __ATOMIC_SEQ_CST);
        return 1;
    }
    return 0;
}

uint32_t llamad_cache_risk(llamad_cache *cache, int32_t row) {
    return __atomic_exchange_n(&cache->rows[row].state, LLAMAD_CACHE_OWN, __ATOMIC_SEQ_CST);
}

void llamad_cache_survive(llamad_cache *cache, int32_t row, uint32_t state) {
    set_state(&cache->rows[row], state);
    if (state == LLAMAD_CACHE_WRITTEN) tell(cache);
}

// --- from one engine to the next --------------------------------------------------------------------------------------

static int by_place(const void *a, const void *b) {
    const llamad_cache_row *x = *(llamad_cache_row *const *) a, *y = *(llamad_cache_row *const *) b;
    return x->at < y->at ? -1 : x->at > y->at;
}

static int by_id(const void *a, const void *b) {
    const llamad_cache_row *x = *(llamad_cache_row *const *) a, *y = *(llamad_cache_row *const *) b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int has_cells(const llamad_cache_row *row) {
    return row->kind == LLAMAD_CACHE_STATE || row->kind == LLAMAD_CACHE_PART;
}

// Returns the number of the entry before this one among these n, which are sorted by their ids, if it is READY and can be
// that; -1 if it is not there.
static int32_t before(llamad_cache_row *const *rows, int32_t n, const llamad_cache_row *row) {
    const llamad_cache_row *first;
    int32_t low = 0, high = n;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (rows[middle]->id < row->before) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == n || rows[low]->id != row->before) return -1;
    first = rows[low];
    if (!has_cells(first) || state_of(first) != LLAMAD_CACHE_READY) return -1;
    if (row->kind == LLAMAD_CACHE_END) return first->n_tokens >= row->n_tokens ? low : -1;
    return first->id < row->id && first->n_tokens < row->n_tokens ? low : -1;
}

// Lets the parts leave that no end needs. The n rows are sorted by their ids; only READY ones are needed.
static void drop_useless(llamad_cache_row **rows, int32_t n) {
    uint8_t *is_needed = (uint8_t *) calloc((size_t) n + 1, 1);
    int32_t i, first;
    if (!is_needed) return; // the engine drops them, too
    for (i = 0; i < n; i++) {
        if (rows[i]->kind != LLAMAD_CACHE_END || state_of(rows[i]) != LLAMAD_CACHE_READY) continue;
        first = before(rows, n, rows[i]);
        if (first >= 0) is_needed[first] = 1;
    }
    for (i = n - 1; i >= 0; i--) { // in this order, each part comes before those that it needs
        if (!has_cells(rows[i]) || state_of(rows[i]) != LLAMAD_CACHE_READY) continue;
        if (rows[i]->kind == LLAMAD_CACHE_PART && !is_needed[i]) {
            set_state(rows[i], LLAMAD_CACHE_LEAVING);
        } else if (rows[i]->before) {
            first = before(rows, n, rows[i]);
            if (first >= 0) is_needed[first] = 1;
        }
    }
    free(is_needed);
}

// Lets each of n READY rows leave that lacks an entry before it, or that no end needs, and notes where the cells of the
// others begin.
static void drop_orphans(llamad_cache *cache, llamad_cache_row **rows, int32_t n) {
    int32_t i, first;
    qsort(rows, (size_t) n, sizeof *rows, by_id);
    for (i = 0; i < n; i++) { // in this order, each one comes after those before it
        llamad_cache_row *row = rows[i];
        if (!has_cells(row) || row->before == 0 || state_of(row) != LLAMAD_CACHE_READY) continue;
        first = before(rows, i, row);
        if (first >= 0) {
            cache->places[row - cache->rows].begin = rows[first]->n_tokens;
        } else {
            set_state(row, LLAMAD_CACHE_LEAVING);
        }
    }
    for (i = 0; i < n; i++) { // an end may need a newer entry
        if (rows[i]->kind != LLAMAD_CACHE_END || state_of(rows[i]) != LLAMAD_CACHE_READY) continue;
        if (before(rows, n, rows[i]) < 0) set_state(rows[i], LLAMAD_CACHE_LEAVING);
    }
    drop_useless(rows, n);
}

// Frees the rows whose range begins within that of another one. Returns how many are left.
static int32_t without_overlaps(llamad_cache_row **rows, int32_t n) {
    uint64_t top = DATA_AT;
    int32_t i, n_left = 0;
    qsort(rows, (size_t) n, sizeof *rows, by_place);
    for (i = 0; i < n; i++) {
        if (rows[i]->at < top) {
            set_state(rows[i], LLAMAD_CACHE_FREE);
        } else {
            top = rows[i]->at + rows[i]->span;
            rows[n_left++] = rows[i];
        }
    }
    return n_left;
}

// Frees every row that is not READY, cannot be as it says, lacks an entry before it or is a part that no end needs, and
// every page that no other row has. Nobody else may write to the memory; an entry that somebody reads keeps its pages.
// Returns how many READY rows are left.
static int32_t clean(llamad_cache *cache) {
    llamad_cache_row **kept = (llamad_cache_row **) malloc(LLAMAD_CACHE_ROWS * sizeof *kept);
    llamad_cache_row copy;
    uint64_t end = DATA_AT, top = DATA_AT;
    int32_t i, n = 0, n_left = 0;
    if (!kept) return 0;
    cache->n_leaving = 0;
    for (i = 0; i < LLAMAD_CACHE_ROWS; i++) {
        llamad_cache_row *row = &cache->rows[i];
        row->n_engine_readers = 0; // an engine that was killed could not take its own back
        cache->places[i].begin = 0;
        if (llamad_cache_row_is_sane(cache, i, LLAMAD_CACHE_READY, &copy)) {
            kept[n++] = row;
        } else if (llamad_cache_row_is_sane(cache, i, LLAMAD_CACHE_LEAVING, &copy) && has_readers(row)) {
            kept[n++] = row;
        } else {
            set_state(row, LLAMAD_CACHE_FREE);
        }
    }
    n = without_overlaps(kept, n);
    drop_orphans(cache, kept, n);
    qsort(kept, (size_t) n, sizeof *kept, by_place);
    for (i = 0; i < n; i++) {
        llamad_cache_row *row = kept[i];
        if (state_of(row) == LLAMAD_CACHE_LEAVING && !has_readers(row)) {
            set_state(row, LLAMAD_CACHE_FREE);
            continue;
        }
        cache->n_leaving += state_of(row) == LLAMAD_CACHE_LEAVING;
        llamad_pages_punch(cache->fd, end, row->at - end);
        end = row->at + row->capacity;
        top = row->at + row->span;
        if (row->id > cache->head->last_id) cache->head->last_id = row->id;
        if (row->used > cache->head->last_used) cache->head->last_used = row->used;
        n_left += state_of(row) == LLAMAD_CACHE_READY;
    }
    free(kept);
    llamad_pages_punch(cache->fd, end, FILE_BYTES - end);
    if (cache->head->next_at < top || cache->head->next_at > FILE_BYTES || cache->head->next_at % PLACE) {
        cache->head->next_at = top;
    }
    return n_left;
}

static void drop_all(llamad_cache *cache) {
    int32_t i;
    for (i = 0; i < LLAMAD_CACHE_ROWS; i++) {
        if (state_of(&cache->rows[i]) == LLAMAD_CACHE_READY) set_state(&cache->rows[i], LLAMAD_CACHE_LEAVING);
    }
}

int32_t llamad_cache_adopt(llamad_cache *cache, const uint8_t *fingerprint) {
    int32_t i, n;
    if (memcmp(cache->head->fingerprint, fingerprint, LLAMAD_CACHE_FINGERPRINT) != 0) drop_all(cache);
    n = clean(cache);
    memcpy(cache->head->fingerprint, fingerprint, LLAMAD_CACHE_FINGERPRINT);
    for (i = 0; i < LLAMAD_CACHE_ROWS; i++) {
        llamad_cache_row *row = &cache->rows[i];
        llamad_cache_place *place = &cache->places[i];
        if (state_of(row) != LLAMAD_CACHE_READY) continue;
        place->data = llamad_pages_map(cache->fd, row->at, row->span);
        place->span = row->span;
        place->trust = LLAMAD_CACHE_UNCHECKED;
        if (!place->data) {
            free_row(cache, i);
            n--;
        }
    }
    return n;
}

// Drops a row of a memory that no engine uses, and returns the bytes that it still has. Its range is never given away
// again, so another thread may free it.
static uint64_t forget(llamad_cache *cache, int32_t i) {
    llamad_cache_row copy;
    set_state(&cache->rows[i], LLAMAD_CACHE_LEAVING);
    copy_once(&copy, &cache->rows[i], sizeof copy);
    if (has_readers(&cache->rows[i])) return has_range(&copy) ? copy.capacity : 0; // the next engine frees it
    // All of its range, because an engine that was killed may have allocated more than it could note.
    if (has_range(&copy)) llamad_pages_drop(cache->fd, NULL, 0, copy.at, copy.span);
    set_state(&cache->rows[i], LLAMAD_CACHE_FREE);
    return 0;
}

typedef struct {
    uint64_t used, capacity;
    int32_t row;
} candidate;

static int by_use(const void *a, const void *b) {
    const candidate *x = (const candidate *) a, *y = (const candidate *) b;
    return x->used < y->used ? -1 : x->used > y->used;
}

uint64_t llamad_cache_shrink(llamad_cache *cache, uint64_t n_bytes) {
    candidate *ready = (candidate *) malloc(LLAMAD_CACHE_ROWS * sizeof *ready);
    llamad_cache_row **rows = (llamad_cache_row **) malloc(LLAMAD_CACHE_ROWS * sizeof *rows);
    llamad_cache_row copy;
    uint64_t n = 0;
    int32_t i, n_left, n_ready = 0;
    if (!ready || !rows) {
        free(ready);
        free(rows);
        return llamad_cache_resident(cache);
    }
    for (i = 0; i < LLAMAD_CACHE_ROWS; i++) {
        if (state_of(&cache->rows[i]) == LLAMAD_CACHE_FREE) continue;
        cache->rows[i].n_engine_readers = 0;
        if (llamad_cache_row_is_sane(cache, i, LLAMAD_CACHE_READY, &copy)) {
            ready[n_ready++] = (candidate){copy.used, copy.capacity, i};
            n += copy.capacity;
        } else {
            n += forget(cache, i);
        }
    }
    qsort(ready, (size_t) n_ready, sizeof *ready, by_use);
    for (i = 0; i < n_ready && n > n_bytes; i++) {
        if (has_readers(&cache->rows[ready[i].row])) continue;
        n -= ready[i].capacity;
        n += forget(cache, ready[i].row);
    }
    for (i = 0; i < n_ready; i++) rows[i] = &cache->rows[ready[i].row];
    for (i = n_left = 0; i < n_ready; i++) {
        if (state_of(rows[i]) == LLAMAD_CACHE_READY) rows[n_left++] = rows[i];
    }
    drop_orphans(cache, rows, n_left);
    for (i = 0; i < n_left; i++) {
        if (state_of(rows[i]) != LLAMAD_CACHE_LEAVING) continue;
        n -= rows[i]->capacity;
        n += forget(cache, (int32_t) (rows[i] - cache->rows));
    }
    free(rows);
    free(ready);
    return n;
}
