/* Reads rows of logits while a GPU is still sending them.
 *
 * Owns: the sentinel. Runs on sampler threads; touches nothing but its arguments.
 *
 * A row that has been read is filled with a sentinel, a NaN that no GPU computes. The GPU overwrites it some time after
 * the next decode has returned, in any order. A row is complete once no sentinel is left in it. If a model should
 * compute exactly this NaN, the row is taken when the whole transfer is known to be over.
 */
#ifndef LLAMAD_LOGITS_ARRIVAL_H
#define LLAMAD_LOGITS_ARRIVAL_H

#include <stdint.h>

#include "llamad/base/system.h"
#include "llamad/engine/costs/sampler.h"
#include "llamad/engine/sampler/topk.h"

#define ARRIVAL_SENTINEL ((int32_t) 0xffb1a7edu)

typedef int32_t __attribute__((may_alias)) arrival_word;

static inline void arrival_fill_sentinels(float *row, int32_t n) {
    arrival_word *at = (arrival_word *) row;
    for (int32_t i = 0; i < n; i++) at[i] = ARRIVAL_SENTINEL;
}

static inline int arrival_has_sentinel(const float *row, int32_t n) {
    const arrival_word *at = (const arrival_word *) row;
    uint32_t any = 0;
    for (int32_t i = 0; i < n; i++) any |= at[i] == ARRIVAL_SENTINEL;
    return any != 0;
}

/* Waits until the whole row has arrived and returns 1, with the maxima of its pieces (topk.h), because it has to be
 * read anyway. Returns 0 and no maxima if `is_over` is set, which means that all rows have arrived. Spins until the
 * time `patience_us`, then sleeps between checks. */
static inline int arrival_await(const float *row, int32_t n, float *maxima, const int32_t *is_over,
                                int64_t patience_us) {
    int32_t n_spins = 0;
    for (int32_t i = 0; i < n; i += TOPK_PIECE) {
        while (n - i >= TOPK_PIECE ? topk_piece_maxima(row + i, maxima + i / TOPK_GROUP, ARRIVAL_SENTINEL)
                                   : arrival_has_sentinel(row + i, n - i)) {
            if (load_int(is_over)) return 0;
            if (++n_spins % ARRIVAL_SPINS == 0 && now_us() > patience_us) sleep_us(ARRIVAL_NAP_US);
            relax();
            __asm__ volatile("" ::: "memory"); /* read the row again */
        }
    }
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return 1;
}

/* Waits until `is_over` is set. Spins until the time `patience_us`, then sleeps between checks. */
static inline void arrival_await_all(const int32_t *is_over, int64_t patience_us) {
    for (int32_t n_spins = 1; !load_int(is_over); n_spins++) {
        if (n_spins % ARRIVAL_SPINS == 0 && now_us() > patience_us) sleep_us(ARRIVAL_NAP_US);
        relax();
    }
}

#endif
