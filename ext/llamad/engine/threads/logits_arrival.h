/* Rows of logits that are read while a device is still sending them.
 *
 * Owns: the mark. Sampler threads; touches nothing but its arguments.
 *
 * A row that has been read is filled with a NaN that no device computes. The device overwrites it some time after the
 * next decode has returned, in whatever order its bus likes: a number that is no longer the mark has arrived. Should
 * somebody compute exactly this NaN, the row is taken when the whole transfer is known to be over.
 */
#ifndef LLAMAD_LANDING_H
#define LLAMAD_LANDING_H

#include <stdint.h>

#include "llamad/base/system.h"
#include "llamad/engine/sampler/topk.h"

#define LANDING_MARK ((int32_t) 0xffb1a7edu)
#define LANDING_SPINS 256 /* between two looks at the clock */
#define LANDING_NAP_US 50

typedef int32_t __attribute__((may_alias)) landing_word;

static inline void landing_mark(float *row, int32_t n) {
    landing_word *at = (landing_word *) row;
    for (int32_t i = 0; i < n; i++) at[i] = LANDING_MARK;
}

static inline int landing_is_marked(const float *row, int32_t n) {
    const landing_word *at  = (const landing_word *) row;
    uint32_t            any = 0;
    for (int32_t i = 0; i < n; i++) any |= at[i] == LANDING_MARK;
    return any != 0;
}

/* Returns when all of the row is there, with the maxima of its whole pieces (topk.h), for which it has to be read
 * anyway. Or 0 and no maxima, when `is_over` says that all rows are there. Spins until `patience_us` (a time), and then
 * looks now and again. */
static inline int landing_await(const float *row, int32_t n, float *maxima, const int32_t *is_over,
                                int64_t patience_us) {
    int32_t n_spins = 0;
    for (int32_t i = 0; i < n; i += TOPK_PIECE) {
        while (n - i >= TOPK_PIECE ? topk_piece_maxima(row + i, maxima + i / TOPK_GROUP, LANDING_MARK)
                                   : landing_is_marked(row + i, n - i)) {
            if (load_int(is_over)) return 0;
            if (++n_spins % LANDING_SPINS == 0 && now_us() > patience_us) sleep_us(LANDING_NAP_US);
            relax();
            __asm__ volatile("" ::: "memory"); /* look again */
        }
    }
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return 1;
}

/* Returns when `is_over` says that all rows are there. Spins until `patience_us`, and then looks now and again. */
static inline void landing_await_all(const int32_t *is_over, int64_t patience_us) {
    for (int32_t n_spins = 1; !load_int(is_over); n_spins++) {
        if (n_spins % LANDING_SPINS == 0 && now_us() > patience_us) sleep_us(LANDING_NAP_US);
        relax();
    }
}

#endif
