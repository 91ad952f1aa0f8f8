// The layout of a saved sequence: its sections, and for each layer the type and size of its rows.
// Immutable once it has been learned, so any thread may read it.
#pragma once
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "state.h"

namespace llamad::state {

constexpr uint32_t BLOB_MAGIC = 0xaf143cd8; // precedes the memory, together with the sequence's number
constexpr size_t BLOB_HEAD = 8;
constexpr uint32_t STREAMS_MAX = 4096;
constexpr size_t SES1_HEAD = 8;
constexpr char SES1_MAGIC[] = {'S', 'E', 'S', '1'};

// A layer's rows. There is one row for each cell; if transposed, one element for each cell in every dimension.
struct Rows {
    int32_t type = 0;
    uint64_t bytes = 0;                   // size of a cell's row
    uint32_t element = 0, n_elements = 0; // of transposed rows

    bool operator==(const Rows &o) const {
        return type == o.type && bytes == o.bytes && element == o.element && n_elements == o.n_elements;
    }
};

// The extra numbers of a cell beside its position, for models that need them.
enum class Ext : uint8_t { NONE, POSITION, ZERO };

struct Section {
    bool is_recurrent = false;
    Ext ext = Ext::NONE;
    bool has_tokens = false; // the extra numbers name the token; otherwise that number is -1
    uint32_t n_layer = 0;
    uint32_t v_trans = 0;
    std::vector<Rows> k, v; // a recurrent section has all its rows in k

    bool operator==(const Section &o) const {
        return is_recurrent == o.is_recurrent && ext == o.ext && has_tokens == o.has_tokens && n_layer == o.n_layer &&
               v_trans == o.v_trans && k == o.k && v == o.v;
    }
};

// Reads little-endian numbers. Callers check the bounds with has(); a read past the end returns 0 and stays at the end.
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
        __asm__ volatile("" ::: "memory"); // read it only once, because another process may change it after the check
        at_ += sizeof value;
        return value;
    }

    const uint8_t *data_;
    size_t n_, at_ = 0;
};

// Stores the reason and returns false.
__attribute__((format(printf, 2, 3))) inline bool wrong(llamad_state_error *error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(error->reason, sizeof error->reason, format, arguments);
    va_end(arguments);
    return false;
}

// Compare the header before a section's layers, or before the rows of a layer, with the layout. If it fits they return
// true, and the reader stands behind the header. The rows of n_cells cells follow there, within the bounds.
bool enter_layers(Reader &in, const Section &section, llamad_state_error *error);
bool enter_rows(Reader &in, const Rows &rows, uint32_t n_cells, const char *what, size_t layer,
                llamad_state_error *error);

// Whether every number in n bytes of rows of this type is finite and below 2^64. In a cache that all slots share, a
// larger key would become infinite when it meets another slot's query, and NaN with the mask. `type` must be known.
bool is_finite(int32_t type, const uint8_t *data, size_t n);
// Returns the bytes of a block of the type, which divide the size of a row; 0 if a cache cannot have the type.
size_t block_bytes(int32_t type);
const char *type_name(int32_t type);

} // namespace llamad::state

struct llamad_layout {
    uint32_t n_stream = 1;
    uint32_t n_window = 0; // cells of a sliding window, 0: unknown
    std::vector<llamad::state::Section> sections;
};
