/* Owns: how texts and pairs are spread over tables. Pure functions, any thread. */
#ifndef LLAMAD_HASH_H
#define LLAMAD_HASH_H

#include <cstddef>
#include <cstdint>
#include <cstring>

inline uint64_t hash_mix(uint64_t hash, uint64_t part) {
    hash = (hash ^ part) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

inline uint64_t hash_text(const char *text, size_t n, uint64_t seed) {
    uint64_t hash = seed, part;
    for (; n > 8; n -= 8, text += 8) {
        memcpy(&part, text, 8);
        hash = hash_mix(hash, part);
    }
    part = 0;
    memcpy(&part, text, n);
    return hash_mix(hash, part);
}

#endif
