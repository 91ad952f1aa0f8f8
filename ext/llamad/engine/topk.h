/* The largest k logits of a row, without a candidate array of the whole vocabulary.
 *
 * Owns: the scan of the row. Sampler threads; touches nothing but its arguments.
 *
 * The row is read once in pieces of 1,024: each of 16 lanes j keeps the maximum of the 64 elements
 * j, j + 16, j + 32, ... of its piece, so no element is ever compared across lanes. The k-th largest of these
 * maxima is a threshold that at least k elements reach, and only the groups whose maximum reaches it are looked
 * into again. NaN compares false and is never chosen.
 */
#ifndef LLAMAD_TOPK_H
#define LLAMAD_TOPK_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define TOPK_LANES 16
#define TOPK_GROUP 64
#define TOPK_PIECE (TOPK_LANES * TOPK_GROUP)

/* As wide as the registers are: the compiler takes wider vectors apart, element by element. */
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

/* Writes one maximum for each group of the whole pieces; returns how many. */
static inline int32_t topk_group_maxima(const float *row, int32_t n, float *out) {
    int32_t n_pieces = n / TOPK_PIECE;
    for (int32_t piece = 0; piece < n_pieces; piece++) {
        const float *at = row + (size_t) piece * TOPK_PIECE;
        topk_vf max[TOPK_PARTS], next;
        for (int part = 0; part < TOPK_PARTS; part++) max[part] = (topk_vf) {0} - INFINITY;
        for (int i = 0; i < TOPK_GROUP; i++) {
            for (int part = 0; part < TOPK_PARTS; part++) {
                memcpy(&next, at + i * TOPK_LANES + part * TOPK_WIDTH, sizeof next);
                topk_vi bigger = next > max[part];
                max[part] = (topk_vf) (((topk_vi) next & bigger) | ((topk_vi) max[part] & ~bigger));
            }
        }
        memcpy(out + (size_t) piece * TOPK_LANES, max, sizeof max);
    }
    return n_pieces * TOPK_LANES;
}

/* Keeps the k largest values seen in a min-heap. */
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

/* The k-th largest of the maxima, or -inf when there are fewer than k. */
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

#endif
