/* The log of the sum of exponentials of a row of logits.
 *
 * Owns: this one pass over the row. Runs on sampler threads; touches nothing but its arguments.
 *
 * It handles sixteen elements at a time: exp(x) = 2^n * 2^f, with a polynomial for 2^f on -0.5..0.5 (relative error
 * below 2e-7), added up in doubles.
 */
#ifndef LLAMAD_PROBS_H
#define LLAMAD_PROBS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define PROBS_LANES 16

typedef float probs_vf __attribute__((vector_size(PROBS_LANES * 4)));
typedef int32_t probs_vi __attribute__((vector_size(PROBS_LANES * 4)));
typedef double probs_vd __attribute__((vector_size(PROBS_LANES * 8)));

/* Returns exp(x) for x of at most 0. Below -87 (and for NaN) it is 0. */
static inline probs_vf probs_exp(probs_vf x) {
    const probs_vi is_small = ~(x > -87.0f);
    const probs_vf t = (probs_vf) ((probs_vi) x & ~is_small) * 1.44269504088896341f;
    /* Adding and subtracting 1.5 * 2^23 rounds to the nearest integer. */
    const probs_vf n = (t + 12582912.0f) - 12582912.0f;
    const probs_vf f = t - n;
    probs_vf p = f * 1.5403530393e-4f + 1.3333558146e-3f;
    p = p * f + 9.6181291076e-3f;
    p = p * f + 5.5504108665e-2f;
    p = p * f + 2.4022650696e-1f;
    p = p * f + 6.9314718056e-1f;
    p = p * f + 1.0f;
    probs_vi e = __builtin_convertvector(n, probs_vi);
    e = (e + 127) << 23;
    return (probs_vf) ((probs_vi) (p * (probs_vf) e) & ~is_small);
}

/* Returns log(sum(exp(row))), where `max` is the row's largest element. */
static inline double probs_log_sum(const float *row, int32_t n, float max) {
    probs_vd sums = {0};
    double total = 0;
    int32_t i = 0;
    for (; i + PROBS_LANES <= n; i += PROBS_LANES) {
        probs_vf x;
        memcpy(&x, row + i, sizeof x);
        sums += __builtin_convertvector(probs_exp(x - max), probs_vd);
    }
    for (int lane = 0; lane < PROBS_LANES; lane++) total += sums[lane];
    for (; i < n; i++) {
        if (row[i] > -INFINITY) total += exp((double) row[i] - (double) max);
    }
    return (double) max + log(total);
}

#endif
