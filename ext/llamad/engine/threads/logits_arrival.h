/* Rows of logits that are read while a GPU is still sending them.
 *
 * Owns: the sentinel. Sampler threads; touches nothing but its arguments.
 *
 * A row that has been read is filled with a sentinel, a NaN that no GPU computes. The GPU overwrites it some time
 * after the next decode has returned, in whatever order its bus likes: a row is complete once no sentinel is left in
 * it. Should a model compute exactly this NaN, the row is taken when the whole transfer is known to be over.
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

/* Returns when the whole row is there, with the maxima of its pieces (topk.h), for which it has to be read anyway. Or 0
 * and no maxima, when `is_over` says that all rows are there. Spins until `patience_us` (a time), then naps between
 * looks. */
static inline int arrival_await(const float *row, int32_t n, float *maxima, const int32_t *is_over,
                                int64_t patience_us) {
    int32_t n_spins = 0;
    for (int32_t i = 0; i < n; i += TOPK_PIECE) {
        while (n - i >= TOPK_PIECE ? topk_piece_maxima(row + i, maxima + i / TOPK_GROUP, ARRIVAL_SENTINEL)
                                   : arrival_has_sentinel(row + i, n - i)) {
            if (load_int(is_over)) return 0;
            if (++n_spins % ARRIVAL_SPINS == 0 && now_us() > patience_us) sleep_us(ARRIVAL_NAP_US);
            relax();
            __asm__ volatile("" ::: "memory"); /* look again */
        }
    }
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return 1;
}

/* Returns when `is_over` says that all rows are there. Spins until `patience_us`, then naps between looks. */
static inline void arrival_await_all(const int32_t *is_over, int64_t patience_us) {
    for (int32_t n_spins = 1; !load_int(is_over); n_spins++) {
        if (n_spins % ARRIVAL_SPINS == 0 && now_us() > patience_us) sleep_us(ARRIVAL_NAP_US);
        relax();
    }
}

#endif
