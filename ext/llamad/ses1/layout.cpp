// Learns a layout: reads what llama.cpp wrote for one token and for two in every known form, and takes the form that
// fits both to the last byte. Runs once, at start.
#include <memory>

#include "layout.hpp"

using namespace llamad::state;

namespace {

constexpr uint64_t ROW_MAX = 1u << 30;
constexpr uint32_t LAYER_MAX = 4096;

// The sections of a state, and what they contain.
struct Form {
    int n_kv;
    bool has_recurrent, has_ext, has_v;
};

bool read_rows(Reader &in, std::vector<Rows> &out, uint32_t n_cells, uint64_t bytes_min = 1) {
    Rows rows;
    if (!in.has(12)) return false;
    rows.type = in.i32();
    rows.bytes = in.u64();
    const size_t block = block_bytes(rows.type);
    if (block == 0 || rows.bytes < bytes_min || rows.bytes > ROW_MAX || rows.bytes % block) return false;
    if (!in.has(rows.bytes * n_cells)) return false;
    in.skip(rows.bytes * n_cells);
    out.push_back(rows);
    return true;
}

bool read_transposed(Reader &in, std::vector<Rows> &out, uint32_t n_cells) {
    Rows rows;
    if (!in.has(12)) return false;
    rows.type = in.i32();
    rows.element = in.u32();
    rows.n_elements = in.u32();
    rows.bytes = uint64_t{rows.element} * rows.n_elements;
    if (rows.element == 0 || block_bytes(rows.type) != rows.element || rows.bytes == 0 || rows.bytes > ROW_MAX)
        return false;
    if (!in.has(rows.bytes * n_cells)) return false;
    in.skip(rows.bytes * n_cells);
    out.push_back(rows);
    return true;
}

// Reads the cells of a new sequence, whose positions are in order. That shows what the extra numbers hold.
bool read_cells(Reader &in, Section &section, bool has_ext, uint32_t n_cells) {
    bool is_position = true, is_zero = true, is_null = true;
    if (!in.has(uint64_t{n_cells} * (has_ext ? 24 : 12))) return false;
    for (uint32_t i = 0; i < n_cells; i++) {
        const int32_t pos = in.i32();
        const uint32_t n_seq_id = in.u32();
        if (pos != static_cast<int32_t>(i) || n_seq_id != 1) return false;
        if (has_ext) {
            const int32_t x = in.i32(), y = in.i32(), token = in.i32();
            is_position &= x == pos && y == pos;
            is_zero &= x == 0 && y == 0;
            is_null &= token == -1;
        }
        in.skip(4);
    }
    if (!has_ext) return true;
    section.ext = is_zero ? Ext::ZERO : Ext::POSITION;
    section.has_tokens = !is_null;
    return is_position || is_zero;
}

bool read_kv(Reader &in, Section &section, const Form &form, uint32_t n_cells, uint32_t &n_stream) {
    if (!in.has(8)) return false;
    n_stream = in.u32();
    if (n_stream == 0 || n_stream > STREAMS_MAX || in.u32() != n_cells) return false;
    if (!read_cells(in, section, form.has_ext, n_cells) || !in.has(8)) return false;
    section.v_trans = in.u32();
    section.n_layer = in.u32();
    if (section.v_trans > 1 || section.n_layer > LAYER_MAX) return false;
    for (uint32_t i = 0; i < section.n_layer; i++) {
        if (!read_rows(in, section.k, n_cells)) return false;
    }
    for (uint32_t i = 0; form.has_v && i < section.n_layer; i++) {
        if (!(section.v_trans ? read_transposed(in, section.v, n_cells) : read_rows(in, section.v, n_cells)))
            return false;
    }
    for (uint32_t s = 1; s < n_stream; s++) {
        if (!in.has(4) || in.u32() != 0) return false;
    }
    return true;
}

// Reads the recurrent section. It is always the last one, so its rows go on to the end. Some are empty if the model has
// only one of the two kinds of recurrent state, as LFM2.
bool read_recurrent(Reader &in, Section &section, uint32_t n_tokens) {
    section.is_recurrent = true;
    if (!in.has(20) || in.u32() != 1 || in.i32() != static_cast<int32_t>(n_tokens) - 1 || in.u32() != 0) return false;
    if (in.u32() != 0) return false;
    section.n_layer = in.u32();
    if (section.n_layer > LAYER_MAX) return false;
    while (in.left()) {
        if (!read_rows(in, section.k, 1, 0)) return false;
    }
    return !section.k.empty();
}

bool read_form(const uint8_t *data, size_t n, uint32_t n_tokens, const Form &form, llamad_layout &layout) {
    Reader in(data, n);
    if (!in.has(BLOB_HEAD) || in.u32() != BLOB_MAGIC) return false;
    in.skip(4);
    for (int i = 0; i < form.n_kv; i++) {
        Section section;
        uint32_t n_stream = 0;
        if (!read_kv(in, section, form, n_tokens, n_stream)) return false;
        if (i > 0 && n_stream != layout.n_stream) return false;
        layout.n_stream = n_stream;
        layout.sections.push_back(section);
    }
    if (form.has_recurrent) {
        Section section;
        if (!read_recurrent(in, section, n_tokens)) return false;
        layout.sections.push_back(section);
    }
    return in.left() == 0;
}

const Form FORMS[] = {
    {1, false, false, true}, {2, false, false, true},  {0, true, false, false}, {1, true, false, true},
    {2, true, false, true},  {1, false, true, true},   {2, false, true, true},  {1, true, true, true},
    {2, true, true, true},   {1, false, false, false}, {1, false, true, false}, {1, true, false, false},
    {1, true, true, false},
};

// Returns the largest size; a sliding window may hold fewer cells than tokens.
size_t bytes_with(const llamad_layout &layout, uint32_t n_tokens, uint32_t n_stream) {
    size_t n = SES1_HEAD + size_t{n_tokens} * 4 + BLOB_HEAD;
    for (const Section &section : layout.sections) {
        const size_t n_cells = section.is_recurrent ? 1 : n_tokens;
        n += section.is_recurrent ? 20 : 4 + size_t{n_stream} * 4 + n_cells * (section.ext == Ext::NONE ? 12 : 24) + 8;
        for (const Rows &rows : section.k) n += 12 + rows.bytes * n_cells;
        for (const Rows &rows : section.v) n += 12 + rows.bytes * n_cells;
    }
    return n;
}

// Compares two layouts. What the extra numbers of a cell mean shows only beyond position 0, so that is taken from
// `two`.
bool are_alike(const llamad_layout &one, const llamad_layout &two) {
    if (one.n_stream != two.n_stream || one.sections.size() != two.sections.size()) return false;
    for (size_t i = 0; i < one.sections.size(); i++) {
        Section section = one.sections[i];
        section.ext = two.sections[i].ext;
        if (!(section == two.sections[i])) return false;
    }
    return true;
}

} // namespace

extern "C" {

llamad_layout *llamad_layout_learn(const uint8_t *one, size_t n_one, const uint8_t *two, size_t n_two,
                                   uint32_t n_window, llamad_state_error *error) {
    error->reason[0] = 0;
    try {
        for (const Form &form : FORMS) {
            auto layout = std::make_unique<llamad_layout>();
            llamad_layout first;
            if (read_form(one, n_one, 1, form, first) && read_form(two, n_two, 2, form, *layout) &&
                are_alike(first, *layout)) {
                layout->n_window = n_window;
                return layout.release();
            }
        }
        wrong(error, "this model keeps its memory in a form that llamad does not know how to check");
    } catch (...) {
        wrong(error, "memory ran out for the layout of saved states");
    }
    return nullptr;
}

void llamad_layout_close(llamad_layout *layout) { delete layout; }

size_t llamad_layout_bytes(const llamad_layout *layout, uint32_t n_tokens) {
    return bytes_with(*layout, n_tokens, layout->n_stream);
}

size_t llamad_layout_bytes_max(const llamad_layout *layout, uint32_t n_tokens) {
    return bytes_with(*layout, n_tokens, STREAMS_MAX);
}

uint64_t llamad_layout_row_unit(const llamad_layout *layout) {
    uint64_t bits = 0; // of all sizes
    for (const Section &section : layout->sections) {
        if (section.v_trans) return 0;
        for (const auto *all : {&section.k, &section.v}) {
            for (const Rows &rows : *all) {
                if (rows.bytes == 0 || block_bytes(rows.type) > sizeof(float)) return 0;
                if (!section.is_recurrent) bits |= rows.bytes;
            }
        }
    }
    return bits & -bits;
}
}
