/* Finds the largest k logits of a row, without a candidate array of the whole vocabulary.
 *
 * Owns: the scan of the row. Runs on sampler threads; touches nothing but its arguments.
 *
 * The row is read once, in pieces of 256: each lane j of 16 keeps the maximum of the 16 elements j, j + 16, j + 32, ...
 * of its piece, so no element is ever compared across lanes. A value that k of these maxima reach is a threshold that
 * at least k elements reach, and only the pieces with such a maximum are read again. Small pieces make that cheap: what
 * a GPU or another core has just written is far away. NaN compares false and is never chosen.
 */
#ifndef LLAMAD_TOPK_H
#define LLAMAD_TOPK_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "llamad/engine/costs/sampler.h"

#if defined(__AVX__)
#include <immintrin.h>
#endif

#define TOPK_LANES 16
#define TOPK_GROUP 16
#define TOPK_PIECE (TOPK_LANES * TOPK_GROUP)
#define TOPK_FOLD 4
#define TOPK_PLACES 4  /* of a row, read in turns */
#define TOPK_PAGE 1024 /* elements of a page of memory; the processor does not prefetch the next one by itself */

/* As wide as the registers, because the compiler splits wider vectors element by element. */
#if defined(__AVX512F__)
#define TOPK_WIDTH 16
#elif defined(__AVX__)
#define TOPK_WIDTH 8
#else
#define TOPK_WIDTH 4
#endif
#define TOPK_PARTS (TOPK_LANES / TOPK_WIDTH)

typedef float topk_vf __attribute__((vector_size(TOPK_WIDTH * 4)));
typedef int32_t topk_vi __attribute__((vector_size(TOPK_WIDTH * 4)));
/* Loaded once: a GPU may be writing there, and the comparison and the test must see the same value. */
typedef volatile const float topk_seen __attribute__((vector_size(TOPK_WIDTH * 4), aligned(4), may_alias));

/* Returns the larger of two elements in each lane, `b` where `a` is NaN. */
static inline topk_vf topk_max(topk_vf a, topk_vf b) {
    topk_vi bigger = a > b;
    return (topk_vf) (((topk_vi) a & bigger) | ((topk_vi) b & ~bigger));
}

/* Writes one maximum for each group of a piece. Returns whether one of its elements has exactly these bits. */
static inline int topk_piece_maxima(const float *at, float *out, int32_t bits) {
    topk_vf max[TOPK_PARTS], next;
    topk_vi matches = {0};
    int32_t any = 0;
    for (int v = 0; v < TOPK_PARTS; v++) max[v] = (topk_vf) {0} - INFINITY;
    for (int i = 0; i < TOPK_GROUP; i++) {
        __builtin_prefetch(at + TOPK_PAGE + i * TOPK_LANES);
        for (int v = 0; v < TOPK_PARTS; v++) {
            next = *(topk_seen *) (at + i * TOPK_LANES + v * TOPK_WIDTH);
            max[v] = topk_max(next, max[v]);
            matches |= (topk_vi) next == bits;
        }
    }
    memcpy(out, max, sizeof max);
    for (int lane = 0; lane < TOPK_WIDTH; lane++) any |= matches[lane];
    return any != 0;
}

/* Writes the maxima of all whole pieces. Returns how many there are.
 *
 * The row is read at several places in turns, because a processor loads more lines ahead from several pages than from
 * one: 513 KB that no cache has take 33 instead of 38 us. */
static inline int32_t topk_group_maxima(const float *row, int32_t n, float *out) {
    int32_t n_pieces = n / TOPK_PIECE, n_each = n_pieces / TOPK_PLACES;
    for (int32_t i = 0; i < n_each; i++) {
        for (int32_t at = i; at < n_each * TOPK_PLACES; at += n_each) {
            topk_piece_maxima(row + (size_t) at * TOPK_PIECE, out + (size_t) at * TOPK_LANES, 0);
        }
    }
    for (int32_t at = n_each * TOPK_PLACES; at < n_pieces; at++) {
        topk_piece_maxima(row + (size_t) at * TOPK_PIECE, out + (size_t) at * TOPK_LANES, 0);
    }
    return n_pieces * TOPK_LANES;
}

/* Returns the largest of n maxima, a multiple of TOPK_LANES. */
static inline float topk_largest(const float *maxima, int32_t n) {
    topk_vf max[TOPK_PARTS], next;
    float largest = -INFINITY;
    for (int v = 0; v < TOPK_PARTS; v++) max[v] = (topk_vf) {0} - INFINITY;
    for (int32_t i = 0; i < n; i += TOPK_LANES) {
        for (int v = 0; v < TOPK_PARTS; v++) {
            memcpy(&next, maxima + i + v * TOPK_WIDTH, sizeof next);
            max[v] = topk_max(next, max[v]);
        }
    }
    for (int v = 0; v < TOPK_PARTS; v++) {
        for (int lane = 0; lane < TOPK_WIDTH; lane++) largest = max[v][lane] > largest ? max[v][lane] : largest;
    }
    return largest;
}

/* Writes the maxima of TOPK_FOLD pieces each, without those that are left over. Returns how many there are. */
static inline int32_t topk_fold(const float *maxima, int32_t n, float *out) {
    int32_t n_folded = n / (TOPK_LANES * TOPK_FOLD) * TOPK_LANES;
    topk_vf max, next;
    for (int32_t i = 0; i < n_folded; i += TOPK_WIDTH) {
        const float *at = maxima + i / TOPK_LANES * TOPK_LANES * TOPK_FOLD + i % TOPK_LANES;
        memcpy(&max, at, sizeof max);
        for (int j = 1; j < TOPK_FOLD; j++) {
            memcpy(&next, at + j * TOPK_LANES, sizeof next);
            max = topk_max(next, max);
        }
        memcpy(out + i, &max, sizeof max);
    }
    return n_folded;
}

/* Restores the order of a min-heap of the k largest values after heap[i] was changed. */
static inline void topk_heap_sink(float *heap, int32_t k, int32_t i) {
    float value = heap[i];
    for (;;) {
        int32_t child = 2 * i + 1;
        if (child >= k) break;
        if (child + 1 < k && heap[child + 1] < heap[child]) child++;
        if (!(heap[child] < value)) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = value;
}

/* Returns the k-th largest of the maxima, or -inf if there are fewer than k. */
static inline float topk_threshold(const float *maxima, int32_t n, int32_t k, float *heap) {
    if (n < k) return -INFINITY;
    memcpy(heap, maxima, (size_t) k * sizeof *heap);
    for (int32_t i = k / 2 - 1; i >= 0; i--) topk_heap_sink(heap, k, i);
    for (int32_t i = k; i < n; i++) {
        if (maxima[i] > heap[0]) {
            heap[0] = maxima[i];
            topk_heap_sink(heap, k, 0);
        }
    }
    return heap[0];
}

/* Returns how many elements reach a value. */
static inline int32_t topk_count(const float *row, int32_t n, float least) {
    topk_vf limit = (topk_vf) {0} + least, next;
    topk_vi sum = {0};
    int32_t count = 0, i = 0;
    for (; i + TOPK_WIDTH <= n; i += TOPK_WIDTH) {
        memcpy(&next, row + i, sizeof next);
        sum -= (topk_vi) (next >= limit);
    }
    for (int lane = 0; lane < TOPK_WIDTH; lane++) count += sum[lane];
    for (; i < n; i++) count += row[i] >= least;
    return count;
}

/* Returns a value that at least k elements reach and not many more, found by counting. Returns -FLT_MAX if that does
 * not lead to one soon, for example with many equal elements. For a short row, or for maxima. */
static inline float topk_near(const float *row, int32_t n, int32_t k, float largest) {
    const int32_t n_most = k + k / 4 + 8;
    float above = largest, span = 1, least = largest - span;
    int32_t count = topk_count(row, n, least), n_passes = 1;
    for (; count < k && n_passes < COUNT_DOUBLINGS_MAX; n_passes++) {
        above = least;
        span *= 2;
        least = largest - span;
        count = topk_count(row, n, least);
    }
    for (; count > n_most && n_passes < COUNT_PASSES_MAX; n_passes++) {
        float middle = least + (above - least) / 2;
        int32_t n_middle = topk_count(row, n, middle);
        if (n_middle < k) {
            above = middle;
        } else {
            least = middle;
            count = n_middle;
        }
    }
    return count >= k && count <= n_most ? least : -FLT_MAX;
}

/* Returns which of 16 elements are larger, a bit for each. */
static inline uint32_t topk_larger(const float *at, float than) {
#if defined(__AVX512F__)
    return (uint32_t) _mm512_cmp_ps_mask(_mm512_loadu_ps(at), _mm512_set1_ps(than), _CMP_GT_OQ);
#elif defined(__AVX__)
    __m256 limit = _mm256_set1_ps(than);
    uint32_t low = (uint32_t) _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(at), limit, _CMP_GT_OQ));
    return low | (uint32_t) _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(at + 8), limit, _CMP_GT_OQ)) << 8;
#else
    uint32_t bits = 0;
    for (int i = 0; i < 16; i++) bits |= (uint32_t) (at[i] > than) << i;
    return bits;
#endif
}

/* Returns which of 16 elements are at least as large, a bit for each. */
static inline uint32_t topk_reaching(const float *at, float least) {
#if defined(__AVX512F__)
    return (uint32_t) _mm512_cmp_ps_mask(_mm512_loadu_ps(at), _mm512_set1_ps(least), _CMP_GE_OQ);
#elif defined(__AVX__)
    __m256 limit = _mm256_set1_ps(least);
    uint32_t low = (uint32_t) _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(at), limit, _CMP_GE_OQ));
    return low | (uint32_t) _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(at + 8), limit, _CMP_GE_OQ)) << 8;
#else
    uint32_t bits = 0;
    for (int i = 0; i < 16; i++) bits |= (uint32_t) (at[i] >= least) << i;
    return bits;
#endif
}

typedef struct topk_item { /* a llamad_candidate */
    int32_t id;
    float logit;
    float p;
} topk_item;

/* Collects every element that reaches the threshold, in the order of the row, at most n_max. Returns how many there
 * are, or -1 if there are more. */
static inline int32_t topk_collect_all(const float *row, int32_t n, const float *maxima, float least, topk_item *out,
                                       int32_t n_max) {
    int32_t n_whole = n / TOPK_PIECE * TOPK_PIECE, count = 0;
    for (int32_t at = 0; at < n_whole; at += TOPK_PIECE) {
        if (!topk_reaching(maxima + at / TOPK_GROUP, least)) continue;
        for (int32_t i = at; i < at + TOPK_PIECE; i += TOPK_LANES) {
            for (uint32_t bits = topk_reaching(row + i, least); bits; bits &= bits - 1) {
                int32_t id = i + __builtin_ctz(bits);
                if (count == n_max) return -1;
                out[count++] = (topk_item) {id, row[id], 0};
            }
        }
    }
    for (int32_t i = n_whole; i < n; i++) {
        if (!(row[i] >= least)) continue;
        if (count == n_max) return -1;
        out[count++] = (topk_item) {i, row[i], 0};
    }
    return count;
}

/* --- the order of equal elements -------------------------------------------------------------------------------
 *
 * GPUs round logits to 16 bits, so among the 40 largest some are nearly always equal, and their order decides which
 * token a random number selects. llama.cpp leaves that to std::partial_sort: a heap of the first k whose top is the
 * smallest, into which every later element goes that is larger than the top. The same heap is kept here, but pieces of
 * the row whose maximum does not reach the top are skipped: nothing in them would have entered it.
 */
/* Puts a value into a heap with a hole as GNU's library does: the hole goes down to a leaf, then the value comes up. */
static inline void topk_fill_hole(topk_item *heap, int32_t n, int32_t hole, topk_item value) {
    int32_t top = hole, child = hole;
    while (child < (n - 1) / 2) {
        child = 2 * child + 2;
        child -= heap[child].logit > heap[child - 1].logit; /* no branch, because nobody can predict it */
        heap[hole] = heap[child];
        hole = child;
    }
    if (n % 2 == 0 && child == (n - 2) / 2) {
        child = 2 * child + 1;
        heap[hole] = heap[child];
        hole = child;
    }
    while (hole > top && heap[(hole - 1) / 2].logit > value.logit) {
        heap[hole] = heap[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    heap[hole] = value;
}

static inline void topk_enter(topk_item *heap, int32_t k, const float *row, int32_t i) {
    topk_item value = {i, row[i], 0};
    if (value.logit > heap[0].logit) topk_fill_hole(heap, k, 0, value);
}

static inline void topk_enter_all(topk_item *heap, int32_t k, const float *row, int32_t begin, int32_t end) {
    for (int32_t i = begin; i < end; i++) topk_enter(heap, k, row, i);
}

/* Writes the k largest, sorted, with equal elements in the order in which llama.cpp's sort leaves them. `maxima` are
 * those of the groups; no NaN may be among the first k elements. */
static inline void topk_in_order(const float *row, int32_t n, int32_t k, const float *maxima, topk_item *out) {
    int32_t n_whole = n / TOPK_PIECE * TOPK_PIECE;
    for (int32_t i = 0; i < k; i++) out[i] = (topk_item) {i, row[i], 0};
    for (int32_t i = k / 2 - 1; i >= 0; i--) topk_fill_hole(out, k, i, out[i]);
    int32_t first = k < n_whole ? (k + TOPK_PIECE - 1) / TOPK_PIECE * TOPK_PIECE : k;
    topk_enter_all(out, k, row, k, first < n ? first : n);
    for (int32_t at = first; at < n_whole; at += TOPK_PIECE) {
        const float *lanes = maxima + at / TOPK_PIECE * TOPK_LANES;
        if (!topk_larger(lanes, out[0].logit)) continue;
        for (int32_t i = at; i < at + TOPK_PIECE; i += TOPK_LANES) {
            for (uint32_t bits = topk_larger(row + i, out[0].logit); bits; bits &= bits - 1) {
                topk_enter(out, k, row, i + __builtin_ctz(bits));
            }
        }
    }
    topk_enter_all(out, k, row, n_whole > first ? n_whole : first, n);
    for (int32_t last = k - 1; last > 0; last--) {
        topk_item value = out[last];
        out[last] = out[0];
        topk_fill_hole(out, last, 0, value);
    }
}

#endif
