/* The 128 buckets into which llama.cpp puts logits before it sorts many of them.
 *
 * Owns: which bucket a logit belongs to. Any thread; touches nothing but its arguments.
 */
#ifndef LLAMAD_BUCKETS_H
#define LLAMAD_BUCKETS_H

#include <stdint.h>
#include <string.h>

#define BUCKETS_N 128
#define BUCKETS_SCALE (BUCKETS_N / 20.0f) /* between -10 and 10; logits outside are in the outermost bucket */
#define BUCKETS_SHIFT (10.0f * BUCKETS_SCALE)

static inline int32_t buckets_place(float logit) {
    int32_t place = (int32_t) (BUCKETS_SCALE * logit + BUCKETS_SHIFT);
    return place < 0 ? 0 : place > BUCKETS_N - 1 ? BUCKETS_N - 1 : place;
}

/* Writes the bucket of every element, and the number of elements in each bucket. */
static inline void buckets_places(const float *row, int32_t n, uint8_t *places, int32_t *counts) {
    int32_t parts[4][BUCKETS_N], i = 0; /* four counts, so that one increment need not wait for the one before */
    memset(parts, 0, sizeof parts);
    for (int32_t j = 0; j < n; j++) places[j] = (uint8_t) buckets_place(row[j]);
    for (; i + 4 <= n; i += 4) {
        for (int j = 0; j < 4; j++) parts[j][places[i + j]]++;
    }
    for (; i < n; i++) parts[0][places[i]]++;
    for (int j = 0; j < BUCKETS_N; j++) counts[j] = parts[0][j] + parts[1][j] + parts[2][j] + parts[3][j];
}

/* Writes the approximate sum of p in every bucket. */
static inline void buckets_masses(const float *p, const uint8_t *places, int32_t n, double *masses) {
    double parts[4][BUCKETS_N];
    int32_t i = 0;
    memset(parts, 0, sizeof parts);
    for (; i + 4 <= n; i += 4) {
        for (int j = 0; j < 4; j++) parts[j][places[i + j]] += p[i + j];
    }
    for (; i < n; i++) parts[0][places[i]] += p[i];
    for (int j = 0; j < BUCKETS_N; j++) masses[j] = parts[0][j] + parts[1][j] + parts[2][j] + parts[3][j];
}

#endif
