/* Sums over a row of floats, many lanes at a time, with exactly the bits of adding one after the other.
 *
 * Owns: the sums that llama.cpp computes in order, over probabilities and over squares. Any thread; touches nothing but
 * its arguments.
 *
 * While a running sum S stays between two powers of two, its last place u is fixed: S is a multiple of u, and adding p
 * >= 0 adds p rounded to a multiple of u, whatever S is. Only an exact tie depends on S. So the rounded elements of a
 * block may be added in any order, exactly. If a block contains a tie or takes S past the power of two, it is added one
 * by one.
 */
#ifndef LLAMAD_SUMS_H
#define LLAMAD_SUMS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define SUMS_LANES 16
#elif defined(__AVX__)
#define SUMS_LANES 8
#else
#define SUMS_LANES 4
#endif
#define SUMS_BLOCK 256

typedef float sums_vf __attribute__((vector_size(SUMS_LANES * 4)));
typedef int32_t sums_vi __attribute__((vector_size(SUMS_LANES * 4)));

/* Vectors of half as many lanes, for doubles. */
#define SUMS_HALF (SUMS_LANES / 2)
typedef float sums_hf __attribute__((vector_size(SUMS_HALF * 4)));
typedef int32_t sums_hi __attribute__((vector_size(SUMS_HALF * 4)));
typedef double sums_hd __attribute__((vector_size(SUMS_HALF * 8)));
typedef int64_t sums_hl __attribute__((vector_size(SUMS_HALF * 8)));

/* Returns the largest power of two that is not above x, which is a normal number. */
static inline float sums_power(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= 0x7F800000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Returns the sum of the elements of a block, each rounded to a multiple of `last` (a power of two); -1 if one of them
 * is exactly between two multiples, or too large to be rounded in this way. Sums of up to 2^24 `last` are exact. */
static inline float sums_block(const float *p, float last) {
    const float magic = 0x1.8p23f * last, half = 0.5f * last, large = 0x1p22f * last;
    sums_vf total = {0};
    sums_vi bad = {0};
    for (int i = 0; i < SUMS_BLOCK; i += SUMS_LANES) {
        sums_vf next;
        memcpy(&next, p + i, sizeof next);
        sums_vf rounded = (next + magic) - magic;
        sums_vf left = next - rounded;
        bad |= (left == half) | (left == -half) | (next > large);
        total += rounded;
    }
    float sum = 0;
    int32_t any = 0;
    for (int lane = 0; lane < SUMS_LANES; lane++) {
        sum += total[lane];
        any |= bad[lane];
    }
    return any ? -1.0f : sum;
}

/* Returns p[0] + p[1] + ..., added in order; none may be negative. */
static float sums_in_order(const float *p, int32_t n) {
    float sum = 0;
    int32_t i = 0;
    while (i < n) {
        int32_t end = i + SUMS_BLOCK < n ? i + SUMS_BLOCK : n;
        if (end - i == SUMS_BLOCK && sum >= 0x1p-60f && sum < 0x1p60f) {
            float power = sums_power(sum), added = sums_block(p + i, power * 0x1p-23f);
            if (added >= 0 && added < power && sum + added < 2 * power) {
                sum += added;
                i = end;
                continue;
            }
        }
        for (; i < end; i++) sum += p[i];
    }
    return sum;
}

/* The same as sums_block for the squares of the distances to the mean. In order, each is added to the sum as a double
 * and the result is rounded to a float, so it is rounded twice here too. An element of -inf is skipped. */
static inline double sums_square_block(const float *row, float mean, double last) {
    const double finer = 0x1.8p23 * last, magic = 0x1.8p52 * last, half = 0.5 * last, large = 0x1p22 * last;
    sums_hd total = {0};
    sums_hl bad = {0};
    for (int i = 0; i < SUMS_BLOCK; i += SUMS_HALF) {
        sums_hf next;
        memcpy(&next, row + i, sizeof next);
        sums_hf away = (sums_hf) ((sums_hi) (next - mean) & (next != -INFINITY));
        sums_hd exact = __builtin_convertvector(away, sums_hd);
        exact = exact * exact;
        sums_hd once = (exact + finer) - finer;
        sums_hd twice = (once + magic) - magic;
        sums_hd left = once - twice;
        bad |= (left == half) | (left == -half) | (exact > large);
        total += twice;
    }
    double sum = 0;
    int64_t any = 0;
    for (int lane = 0; lane < SUMS_HALF; lane++) {
        sum += total[lane];
        any |= bad[lane];
    }
    return any ? -1.0 : sum;
}

/* Returns the sum of (row[i] - mean)^2 over all elements that are not -inf. */
static float sums_squares(const float *row, int32_t n, float mean) {
    float sum = 0;
    int32_t i = 0;
    while (i < n) {
        int32_t end = i + SUMS_BLOCK < n ? i + SUMS_BLOCK : n;
        if (end - i == SUMS_BLOCK && sum >= 0x1p-60f && sum < 0x1p60f) {
            double power = sums_power(sum), added = sums_square_block(row + i, mean, power * 0x1p-23);
            if (added >= 0 && sum + added < 2 * power) {
                sum = (float) (sum + added);
                i = end;
                continue;
            }
        }
        for (; i < end; i++) {
            if (row[i] != -INFINITY) {
                double away = row[i] - mean;
                sum = (float) ((double) sum + away * away);
            }
        }
    }
    return sum;
}

#endif
