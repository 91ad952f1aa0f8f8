/* Owns: the hash functions of the tokenizer's tables. Pure functions, any thread. */
#ifndef LLAMAD_HASH_H
#define LLAMAD_HASH_H

#include <cstddef>
#include <cstdint>
#include <cstring>

inline uint64_t hash_mix(uint64_t hash, uint64_t bits) {
    hash = (hash ^ bits) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

inline uint64_t hash_text(const char *text, size_t n, uint64_t seed) {
    uint64_t hash = seed, bits;
    for (; n > 8; n -= 8, text += 8) {
        memcpy(&bits, text, 8);
        hash = hash_mix(hash, bits);
    }
    bits = 0;
    memcpy(&bits, text, n);
    return hash_mix(hash, bits);
}

#endif
