// Checks at memory speed that cached values are finite, because a NaN in one slot's cache can reach every slot's
// logits.
#include "layout.hpp"

namespace llamad::state {

namespace {

struct Type {
    int32_t type;
    const char *name;
    size_t bytes; // per block
    int n_halves; // f16 numbers at the start of a block; the rest are integers
};

// ggml's numbers of the types that a cache may have.
enum : int32_t { F32 = 0, F16 = 1, BF16 = 30 };
constexpr Type TYPES[] = {
    {F32, "f32", 4, 0}, {F16, "f16", 2, 0}, {2, "q4_0", 18, 1},    {3, "q4_1", 20, 2},   {6, "q5_0", 22, 1},
    {7, "q5_1", 24, 2}, {8, "q8_0", 34, 1}, {20, "iq4_nl", 18, 1}, {BF16, "bf16", 2, 0},
};

const Type *find(int32_t type) {
    for (const Type &one : TYPES) {
        if (one.type == type) return &one;
    }
    return nullptr;
}

// The bits, without the sign, of the smallest value that is too large: 2^64, or infinity if the type ends before that.
constexpr uint32_t F32_LIMIT = 0x5f800000u;
constexpr uint16_t BF16_LIMIT = 0x5f80, F16_LIMIT = 0x7c00;

// The inner loop has no branch, so that the compiler can vectorize it.
template <typename T, T LIMIT> bool all_finite(const uint8_t *data, size_t n) {
    constexpr size_t BLOCK = 4096;
    const size_t n_all = n / sizeof(T);
    for (size_t i = 0; i < n_all; i += BLOCK) {
        const size_t end = n_all < i + BLOCK ? n_all : i + BLOCK;
        T bad = 0;
        for (size_t k = i; k < end; k++) {
            T value;
            std::memcpy(&value, data + k * sizeof(T), sizeof(T));
            bad |= static_cast<T>((value & static_cast<T>(static_cast<T>(-1) >> 1)) >= LIMIT);
        }
        if (bad) return false;
    }
    return true;
}

bool halves_finite(const uint8_t *data, size_t n, const Type &type) {
    for (size_t at = 0; at + type.bytes <= n; at += type.bytes) {
        if (!all_finite<uint16_t, F16_LIMIT>(data + at, static_cast<size_t>(type.n_halves) * 2)) return false;
    }
    return true;
}

} // namespace

size_t block_bytes(int32_t type) {
    const Type *known = find(type);
    return known ? known->bytes : 0;
}

const char *type_name(int32_t type) {
    const Type *known = find(type);
    return known ? known->name : "unknown";
}

bool is_finite(int32_t type, const uint8_t *data, size_t n) {
    switch (type) {
        case F32: return all_finite<uint32_t, F32_LIMIT>(data, n);
        case F16: return all_finite<uint16_t, F16_LIMIT>(data, n);
        case BF16: return all_finite<uint16_t, BF16_LIMIT>(data, n);
        default: return halves_finite(data, n, *find(type));
    }
}

} // namespace llamad::state
