// The shape of a saved sequence: which sections, and for each layer the type and size of its rows.
// Owned by whoever learned it; constant afterwards, so any thread may read it.
#pragma once
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "state.h"

namespace llamad::state {

constexpr uint32_t BLOB_MAGIC = 0xaf143cd8; // before the memory, with the sequence's number
constexpr size_t BLOB_HEAD = 8;
constexpr uint32_t STREAMS_MAX = 4096;
constexpr size_t SES1_HEAD = 8;
constexpr char SES1_MAGIC[] = {'S', 'E', 'S', '1'};

// A layer's rows: one for each cell, or, transposed, one element for each cell in every dimension.
struct Rows {
    int32_t type = 0;
    uint64_t bytes = 0;                   // of a cell's row
    uint32_t element = 0, n_elements = 0; // of a transposed one

    bool operator==(const Rows &o) const {
        return type == o.type && bytes == o.bytes && element == o.element && n_elements == o.n_elements;
    }
};

// What a cell tells beside its position, for models that need it.
enum class Ext : uint8_t { NONE, POSITION, ZERO };

struct Section {
    bool is_recurrent = false;
    Ext ext = Ext::NONE;
    bool has_tokens = false; // a cell with ext names its token, else a constant -1
    uint32_t n_layer = 0;
    uint32_t v_trans = 0;
    std::vector<Rows> k, v; // of a recurrent section all rows are in k

    bool operator==(const Section &o) const {
        return is_recurrent == o.is_recurrent && ext == o.ext && has_tokens == o.has_tokens && n_layer == o.n_layer &&
               v_trans == o.v_trans && k == o.k && v == o.v;
    }
};

// Reads little-endian numbers. Bounds are checked by whoever asks `has`; past the end it stays there.
class Reader {
  public:
    Reader(const uint8_t *data, size_t n) : data_(data), n_(n) {}
    size_t at() const { return at_; }
    size_t left() const { return n_ - at_; }
    bool has(uint64_t n) const { return n <= n_ - at_; }
    const uint8_t *here() const { return data_ + at_; }
    void skip(size_t n) { at_ += n; }
    uint32_t u32() { return take<uint32_t>(); }
    int32_t i32() { return take<int32_t>(); }
    uint64_t u64() { return take<uint64_t>(); }

  private:
    template <typename T> T take() {
        T value{};
        if (!has(sizeof value)) {
            at_ = n_;
            return value;
        }
        std::memcpy(&value, data_ + at_, sizeof value);
        __asm__ volatile("" ::: "memory"); // read once: another process may change it after the check
        at_ += sizeof value;
        return value;
    }

    const uint8_t *data_;
    size_t n_, at_ = 0;
};

// False, with the reason.
__attribute__((format(printf, 2, 3))) inline bool wrong(llamad_state_error *error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(error->reason, sizeof error->reason, format, arguments);
    va_end(arguments);
    return false;
}

// Whether every number in so many bytes of rows of this type is finite, and below 2^64: in a cache that all slots share,
// a larger key would become infinite when another slot's query meets it, and with the mask not a number. `type` must be
// a known one.
bool is_finite(int32_t type, const uint8_t *data, size_t n);
// Bytes in a block of the type and how the sizes of its rows divide; 0: not a type that a cache may have.
size_t block_bytes(int32_t type);
const char *type_name(int32_t type);

} // namespace llamad::state

struct llamad_layout {
    uint32_t n_stream = 1;
    uint32_t n_window = 0; // cells of a sliding window, 0: unknown
    std::vector<llamad::state::Section> sections;
};
