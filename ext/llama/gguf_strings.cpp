// Checks an array of strings in the mapped, untrusted head of a GGUF file. Called by the thread that opens the model,
// before llama.cpp sees the file. Reads nothing outside the given bytes and makes no copies.
#include "shim.h"

#include <cstdio>
#include <cstring>
#include <memory>
#include <new>

namespace {

uint64_t length_at(const uint8_t *data, uint64_t at) {
    uint64_t n;
    std::memcpy(&n, data + at, sizeof(n));
    return n;
}

// The length that llama.cpp sees. It takes the strings as C strings, which end at the first NUL.
uint64_t length_seen(const uint8_t *data, uint64_t at) {
    const uint64_t n = length_at(data, at);
    const void *end = n ? std::memchr(data + at + 8, 0, n) : nullptr;
    return end ? static_cast<uint64_t>(static_cast<const uint8_t *>(end) - (data + at + 8)) : n;
}

uint64_t hash(const uint8_t *text, uint64_t n) {
    uint64_t h = 14695981039346656037ull ^ n;
    for (; n >= 8; n -= 8, text += 8) {
        h = (h ^ length_at(text, 0)) * 0x9E3779B97F4A7C15ull;
        h ^= h >> 29;
    }
    for (; n; n--, text++) h = (h ^ *text) * 1099511628211ull;
    return h ^ h >> 32;
}

// A hash set of strings, which holds the offset of each. llama.cpp renames the empty string i to "[EMPTY_i]".
class Set {
  public:
    explicit Set(uint64_t n) {
        while (n_places_ < 2 * n) n_places_ *= 2;
        places_.reset(new uint64_t[n_places_]());
    }

    // Returns false if the string is in the set already. A place holds offset + 1.
    bool add(const uint8_t *data, uint64_t at) {
        uint64_t &place = find(data, data + at + 8, length_seen(data, at));
        if (place) return false;
        place = at + 1;
        return true;
    }

    bool has(const uint8_t *data, const char *text, uint64_t n) {
        return find(data, reinterpret_cast<const uint8_t *>(text), n) != 0;
    }

  private:
    // Returns the place of the string, or the free place for it.
    uint64_t &find(const uint8_t *data, const uint8_t *text, uint64_t n) {
        uint64_t i = hash(text, n) & (n_places_ - 1);
        for (; places_[i]; i = (i + 1) & (n_places_ - 1)) {
            const uint64_t other = places_[i] - 1;
            if (length_seen(data, other) == n && std::memcmp(data + other + 8, text, n) == 0) break;
        }
        return places_[i];
    }

    uint64_t n_places_ = 16;
    std::unique_ptr<uint64_t[]> places_;
};

} // namespace

extern "C" int32_t llamad_gguf_strings(const uint8_t *data, uint64_t n_bytes, uint64_t at, uint64_t n, int32_t is_set,
                                       llamad_strings *strings) {
    const uint64_t begin = at;
    *strings = {at, 0, -1, -1};
    if (at > n_bytes || n > (n_bytes - at) / 8) return -1;
    for (uint64_t i = 0; i < n; i++) {
        if (n_bytes - at < 8) return -1;
        const uint64_t size = length_at(data, at);
        if (size > n_bytes - at - 8) return -1;
        if (size > strings->n_longest) strings->n_longest = size;
        if (strings->unsplit < 0 && (size < 3 || !std::memchr(data + at + 9, ' ', size - 1)))
            strings->unsplit = static_cast<int64_t>(i);
        at += 8 + size;
    }
    strings->end = at;
    if (!is_set) return 0;
    try {
        Set set(n);
        at = begin;
        for (uint64_t i = 0; i < n; i++) {
            const uint64_t size = length_at(data, at);
            if (length_seen(data, at) && !set.add(data, at)) {
                strings->twice = static_cast<int64_t>(i);
                return 0;
            }
            at += 8 + size;
        }
        at = begin;
        for (uint64_t i = 0; i < n; i++) {
            const uint64_t size = length_at(data, at);
            char name[40];
            const int n_name = std::snprintf(name, sizeof(name), "[EMPTY_%llu]", static_cast<unsigned long long>(i));
            if (!length_seen(data, at) && set.has(data, name, static_cast<uint64_t>(n_name))) {
                strings->twice = static_cast<int64_t>(i);
                return 0;
            }
            at += 8 + size;
        }
    } catch (const std::bad_alloc &) {
        return -2;
    }
    return 0;
}
