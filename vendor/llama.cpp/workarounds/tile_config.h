// GCC 12.2's own header tells the optimizer that _tile_loadconfig reads 8 bytes of the 64 that the instruction
// reads. The stores to the other 56 are then dropped, the tiles have no shape, and the first AMX matrix
// multiplication ends the process with an illegal instruction. Here all 64 bytes are named, for every GCC.
#pragma once

#if defined(__AMX_TILE__) && !defined(__clang__)
#include <immintrin.h>

static inline void llamad_tile_loadconfig(const void * config) {
    __asm__ volatile("ldtilecfg\t%X0" : : "m"(*static_cast<const char(*)[64]>(config)));
}

#define _tile_loadconfig llamad_tile_loadconfig
#endif
