/* Computes exp of a whole row, several lanes at a time, with exactly the bits of the C library's expf.
 *
 * Owns: the vector form of expf for arguments that are not positive. Any thread; touches nothing but its arguments.
 *
 * llama.cpp calls expf for every candidate, and a cut may depend on its last bit. glibc's expf reduces the argument to
 * 2^(k/32) * 2^r in double precision and uses a polynomial of degree three, with fused operations if the CPU has them;
 * the same steps in the same order give the same bits. exps_open() compares with the real expf when the module is
 * loaded: with another C library or CPU, a plain loop over expf is used.
 */
#ifndef LLAMAD_EXPS_H
#define LLAMAD_EXPS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define EXPS_N 32
#define EXPS_LEAST (-0x1.9fe368p6f) /* below it the result is 0 */

#define EXPS_SCALE (0x1.71547652b82fep+0 * EXPS_N)
#define EXPS_SHIFT 0x1.8p+52
#define EXPS_C0 (0x1.c6af84b912394p-5 / EXPS_N / EXPS_N / EXPS_N)
#define EXPS_C1 (0x1.ebfce50fac4f3p-3 / EXPS_N / EXPS_N)
#define EXPS_C2 (0x1.62e42ff0c52d6p-1 / EXPS_N)

typedef void (*exps_fn)(const float *row, int32_t n, float max, float *out);

static uint64_t exps_table[EXPS_N]; /* the bits of 2^(i/32), minus what adding k contributes to the exponent */

/* out[i] = expf(row[i] - max) for a max that no element exceeds. */
static void exps_plain(const float *row, int32_t n, float max, float *out) {
    for (int32_t i = 0; i < n; i++) out[i] = expf(row[i] - max);
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

/* Four lanes in double precision. expf itself computes the rest of the row. */
__attribute__((target("avx2,fma"))) static void exps_avx2(const float *row, int32_t n, float max, float *out) {
    const __m256d scale = _mm256_set1_pd(EXPS_SCALE), shift = _mm256_set1_pd(EXPS_SHIFT), one = _mm256_set1_pd(1.0);
    const __m256d c0 = _mm256_set1_pd(EXPS_C0), c1 = _mm256_set1_pd(EXPS_C1), c2 = _mm256_set1_pd(EXPS_C2);
    const __m256i low = _mm256_set1_epi64x(EXPS_N - 1);
    const __m128 top = _mm_set1_ps(max), least = _mm_set1_ps(EXPS_LEAST);
    int32_t i = 0;
    for (; i + 4 <= n; i += 4) {
        __m128 x = _mm_sub_ps(_mm_loadu_ps(row + i), top);
        __m128 is_zero = _mm_cmplt_ps(x, least);
        __m256d xd = _mm256_cvtps_pd(_mm_max_ps(x, least)); /* an -inf must not reach the arithmetic */
        __m256d rounded = _mm256_fmadd_pd(scale, xd, shift);
        __m256i k = _mm256_castpd_si256(rounded);
        __m256d r = _mm256_fmsub_pd(scale, xd, _mm256_sub_pd(rounded, shift));
        __m256i bits = _mm256_i64gather_epi64((const long long *) exps_table, _mm256_and_si256(k, low), 8);
        __m256d power = _mm256_castsi256_pd(_mm256_add_epi64(bits, _mm256_slli_epi64(k, 47)));
        __m256d y = _mm256_fmadd_pd(_mm256_fmadd_pd(c0, r, c1), _mm256_mul_pd(r, r), _mm256_fmadd_pd(c2, r, one));
        _mm_storeu_ps(out + i, _mm_andnot_ps(is_zero, _mm256_cvtpd_ps(_mm256_mul_pd(y, power))));
    }
    exps_plain(row + i, n - i, max, out + i);
}

/* Eight lanes; the table stays in four registers. */
__attribute__((target("avx512f,avx512vl,avx512dq,avx2,fma"))) static void exps_avx512(const float *row, int32_t n,
                                                                                      float max, float *out) {
    const __m512d scale = _mm512_set1_pd(EXPS_SCALE), shift = _mm512_set1_pd(EXPS_SHIFT), one = _mm512_set1_pd(1.0);
    const __m512d c0 = _mm512_set1_pd(EXPS_C0), c1 = _mm512_set1_pd(EXPS_C1), c2 = _mm512_set1_pd(EXPS_C2);
    const __m512i t0 = _mm512_loadu_si512(exps_table), t1 = _mm512_loadu_si512(exps_table + 8);
    const __m512i t2 = _mm512_loadu_si512(exps_table + 16), t3 = _mm512_loadu_si512(exps_table + 24);
    const __m512i half = _mm512_set1_epi64(EXPS_N / 2);
    const __m256 top = _mm256_set1_ps(max), least = _mm256_set1_ps(EXPS_LEAST);
    int32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 x = _mm256_sub_ps(_mm256_loadu_ps(row + i), top);
        __mmask8 kept = _mm256_cmp_ps_mask(x, least, _CMP_NLT_UQ);
        __m512d xd = _mm512_cvtps_pd(_mm256_max_ps(x, least));
        __m512d rounded = _mm512_fmadd_pd(scale, xd, shift);
        __m512i k = _mm512_castpd_si512(rounded);
        __m512d r = _mm512_fmsub_pd(scale, xd, _mm512_sub_pd(rounded, shift));
        __m512i bits = _mm512_mask_blend_epi64(_mm512_test_epi64_mask(k, half), _mm512_permutex2var_epi64(t0, k, t1),
                                               _mm512_permutex2var_epi64(t2, k, t3));
        __m512d power = _mm512_castsi512_pd(_mm512_add_epi64(bits, _mm512_slli_epi64(k, 47)));
        __m512d y = _mm512_fmadd_pd(_mm512_fmadd_pd(c0, r, c1), _mm512_mul_pd(r, r), _mm512_fmadd_pd(c2, r, one));
        _mm256_storeu_ps(out + i, _mm256_maskz_mov_ps(kept, _mm512_cvtpd_ps(_mm512_mul_pd(y, power))));
    }
    exps_plain(row + i, n - i, max, out + i);
}

/* Returns the widest form that this CPU supports. */
static exps_fn exps_choice(void) {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
        return exps_avx512;
    }
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? exps_avx2 : exps_plain;
}
#else
static exps_fn exps_choice(void) { return exps_plain; }
#endif

/* Fills the table and returns the form to use: the widest one if its bits are those of expf, else the plain loop. */
static exps_fn exps_open(void) {
    enum { N_TESTED = 4096 };
    float x[N_TESTED], got[N_TESTED], expected[N_TESTED];
    uint32_t state = 12345;
    exps_fn chosen = exps_choice();
    for (int i = 0; i < EXPS_N; i++) {
        double power = (double) exp2l((long double) i / EXPS_N);
        memcpy(&exps_table[i], &power, sizeof power);
        exps_table[i] -= (uint64_t) i << 47;
    }
    for (int i = 0; i < N_TESTED; i++) {
        const float spans[4] = {110.0f, 20.0f, 1.0f, 1e-3f};
        state = state * 1664525u + 1013904223u;
        x[i] = -(float) (state >> 8) * 0x1p-24f * spans[i % 4];
    }
    x[0] = 0.0f;
    x[1] = -INFINITY;
    x[2] = EXPS_LEAST;
    x[3] = nextafterf(EXPS_LEAST, -INFINITY);
    chosen(x, N_TESTED, 0.0f, got);
    exps_plain(x, N_TESTED, 0.0f, expected);
    return memcmp(got, expected, sizeof got) == 0 ? chosen : exps_plain;
}

#endif
