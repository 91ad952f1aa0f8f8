/* Writes long rows of the fake as a device does: afterwards they are in no core's cache.
 * Owns: nothing. Runs on the engine thread. */
#ifndef LLAMAD_FAKE_BUS_H
#define LLAMAD_FAKE_BUS_H

#include <stdint.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Fills a row with numbers that look random, from `least` to 8 above it. */
static inline void bus_fill(float *row, int32_t n, float least, uint32_t seed) {
    for (int32_t i = 0; i < n; i++) {
        uint32_t x = ((uint32_t) i + seed) * 0x9E3779B9u;
        x = (x ^ (x >> 15)) * 0x2C1B3C6Du;
        row[i] = (float) ((x ^ (x >> 13)) >> 8) * (8.0f / (1 << 24)) + least;
    }
}

static inline void bus_flush(const float *row, int32_t n) {
#if defined(__x86_64__)
    for (int32_t i = 0; i < n; i += 16) _mm_clflush(row + i);
    _mm_mfence();
#else
    (void) row;
    (void) n;
#endif
}

static inline int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t) t.tv_sec * 1000000000 + t.tv_nsec;
}

#endif
