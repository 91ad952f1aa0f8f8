// Cuts states by position, takes their ends, and joins them. pieces.h says what pieces are. What is written was read by
// parts.cpp, whose counts also say how much is written.
#include "pieces.h"

#include <new>

#include "parts.hpp"

using namespace llamad::state;

namespace {

bool has_cells(const llamad_layout &layout) { return !layout.sections.empty() && !layout.sections[0].is_recurrent; }

size_t first_of_end(const llamad_layout &layout) { return has_cells(layout) ? 1 : 0; }

bool has_end(const llamad_layout &layout) { return layout.sections.size() > first_of_end(layout); }

size_t kv_bytes(const llamad_layout &layout, const Section &section, uint64_t n_cells) {
    size_t n = 4 + size_t{layout.n_stream} * 4;
    if (n_cells == 0) return n;
    n += n_cells * cell_bytes(section) + 8;
    for (const auto *all : {&section.k, &section.v}) {
        for (const Rows &rows : *all) n += 12 + rows.bytes * n_cells;
    }
    return n;
}

size_t recurrent_bytes(const Section &section, uint64_t n_cells) {
    size_t n = 4 + n_cells * 8 + 8;
    for (const Rows &rows : section.k) n += 12 + rows.bytes * n_cells;
    return n;
}

// Without `has_rest` only the cells and rows of the parts are written; what is around them is left as it is.
class Writer {
  public:
    Writer(const llamad_layout &layout, int32_t seq, bool has_rest, uint8_t *out)
        : layout_(layout), seq_(seq), has_rest_(has_rest), out_(out) {
        put(BLOB_MAGIC);
        put(seq);
    }

    // Writes a section with the used cells of all parts, one after the other.
    void kv(const Section &section, const Part *parts, size_t n_parts, uint32_t n_cells) {
        const uint32_t stream = layout_.n_stream > 1 ? static_cast<uint32_t>(seq_) : 0;
        put(layout_.n_stream);
        for (uint32_t s = 0; s < layout_.n_stream; s++) {
            if (s != stream || n_cells == 0) {
                put(uint32_t{0});
                continue;
            }
            put(n_cells);
            for (size_t i = 0; i < n_parts; i++) cells(section, parts[i]);
            put(section.v_trans);
            put(section.n_layer);
            for (size_t i = 0; i < section.k.size(); i++) rows(section.k[i], &Part::k_at, i, parts, n_parts);
            for (size_t i = 0; i < section.v.size(); i++) rows(section.v[i], &Part::v_at, i, parts, n_parts);
        }
    }

    // Writes a recurrent section; without a part it is empty.
    void recurrent(const Section &section, const Part *part) {
        put(uint32_t{part != nullptr});
        if (part != nullptr) {
            put(part->pos_last);
            put(uint32_t{0});
        }
        put(uint32_t{0}); // not transposed
        put(section.n_layer);
        for (size_t i = 0; i < section.k.size(); i++) {
            put(section.k[i].type);
            put(section.k[i].bytes);
            if (part != nullptr) put(part->data + part->k_at[i], section.k[i].bytes);
        }
    }

  private:
    template <typename T> void put(const T &value) {
        if (has_rest_) std::memcpy(out_, &value, sizeof value);
        out_ += sizeof value;
    }

    void put(const void *data, size_t n) {
        std::memcpy(out_, data, n);
        out_ += n;
    }

    void cells(const Section &section, const Part &part) {
        const size_t n_bytes = cell_bytes(section);
        if (part.data == nullptr) out_ += part.n_used * n_bytes;
        for (const Run &run : part.runs) {
            put(part.data + part.cells_at + run.begin * n_bytes, run.n * n_bytes);
            for (uint32_t i = 1; i <= run.n; i++) { // the sequence is the last number of a cell
                std::memcpy(out_ - (i - 1) * n_bytes - sizeof seq_, &seq_, sizeof seq_);
            }
        }
    }

    void rows(const Rows &rows, std::vector<size_t> Part::*at, size_t layer, const Part *parts, size_t n_parts) {
        const bool is_transposed = rows.n_elements > 0;
        put(rows.type);
        if (is_transposed) {
            put(rows.element);
            put(rows.n_elements);
        } else {
            put(rows.bytes);
        }
        const uint32_t n_rows = is_transposed ? rows.n_elements : 1;
        const size_t n_bytes = is_transposed ? rows.element : rows.bytes; // of a cell in a row
        for (uint32_t j = 0; j < n_rows; j++) {
            for (size_t i = 0; i < n_parts; i++) {
                if (parts[i].data == nullptr) {
                    out_ += parts[i].n_used * n_bytes;
                    continue;
                }
                const uint8_t *row = parts[i].data + (parts[i].*at)[layer] + size_t{j} * parts[i].n_cells * n_bytes;
                for (const Run &run : parts[i].runs) put(row + run.begin * n_bytes, run.n * n_bytes);
            }
        }
    }

    const llamad_layout &layout_;
    const int32_t seq_;
    const bool has_rest_;
    uint8_t *out_;
};

// Returns the size of a state with these cells and this end, which may be empty, and writes it if there is room. Parts
// without data are left out. Without `has_rest` only cells and rows are written.
size_t put_state(const llamad_layout &layout, const std::vector<Part> &pieces, const std::vector<Part> &end,
                 bool is_partial, int32_t seq, uint8_t *out, size_t n_out, bool has_rest = true) {
    const size_t first = first_of_end(layout);
    uint64_t n_cells = 0;
    for (const Part &piece : pieces) n_cells += piece.n_used;
    size_t n = BLOB_HEAD;
    for (size_t i = is_partial ? first : 0; i < layout.sections.size(); i++) {
        const Section &section = layout.sections[i];
        const uint64_t n_own = i < first ? n_cells : end.empty() ? 0 : end[i - first].n_used;
        n += section.is_recurrent ? recurrent_bytes(section, n_own) : kv_bytes(layout, section, n_own);
    }
    if (n_out < n) return n;
    Writer writer(layout, seq, has_rest, out);
    for (size_t i = is_partial ? first : 0; i < (has_rest ? layout.sections.size() : first); i++) {
        const Section &section = layout.sections[i];
        const Part *part = i < first || end.empty() ? nullptr : &end[i - first];
        if (section.is_recurrent) {
            writer.recurrent(section, part);
        } else if (i < first) {
            writer.kv(section, pieces.data(), pieces.size(), static_cast<uint32_t>(n_cells));
        } else {
            writer.kv(section, part, part != nullptr, part != nullptr ? part->n_used : 0);
        }
    }
    return n;
}

bool read_piece(const llamad_layout &layout, llamad_piece input, int32_t p0, int32_t p1, std::vector<Part> &pieces,
                llamad_state_error *error) {
    std::vector<Part> parts;
    if (!read_parts(layout, input, 0, parts, error)) return false;
    if (!use_positions(layout.sections[0], parts[0], p0, p1, error)) return false;
    pieces.push_back(std::move(parts[0]));
    return true;
}

bool read_pieces(const llamad_layout &layout, const llamad_piece *inputs, size_t n, int32_t p1,
                 std::vector<Part> &pieces, llamad_state_error *error) {
    uint64_t n_cells = 0;
    for (size_t i = 0; i < n; i++) {
        llamad_state_error own;
        if (!read_piece(layout, inputs[i], 0, p1, pieces, &own))
            return wrong(error, "piece %zu: %.200s", i, own.reason);
        const Part &piece = pieces.back();
        n_cells += piece.n_used;
        if (n_cells >= uint64_t{POS_MAX}) return wrong(error, "the pieces have too many cells");
        if (i == 0) continue;
        const int32_t pos_before = pieces[i - 1].pos_last;
        if (piece.pos_first <= pos_before || !may_follow(layout.sections[0], pos_before, piece.pos_first)) {
            return wrong(error, "piece %zu begins at position %d, but the one before it ends at %d", i, piece.pos_first,
                         pos_before);
        }
    }
    return true;
}

// Reads the end, by itself or in a whole state. `pos` is its position; -1: any.
bool read_end(const llamad_layout &layout, llamad_piece input, bool is_whole, int32_t pos, std::vector<Part> &parts,
              llamad_state_error *error) {
    const size_t first = first_of_end(layout);
    if (!read_parts(layout, input, is_whole ? 0 : first, parts, error)) return false;
    if (is_whole) parts.erase(parts.begin(), parts.begin() + static_cast<ptrdiff_t>(first));
    for (size_t i = 0; i < parts.size(); i++) {
        const Section &section = layout.sections[first + i];
        if (parts[i].n_cells == 0) return wrong(error, "it has no end");
        if (!section.is_recurrent && !use_all(section, parts[i], error)) return false;
        if (pos == -1) pos = parts[i].pos_last;
        if (parts[i].pos_last != pos)
            return wrong(error, "its end is of position %d instead of %d", parts[i].pos_last, pos);
    }
    return true;
}

bool cut(const llamad_layout &layout, llamad_piece state, int32_t p0, int32_t p1, uint8_t *out, size_t n_out, size_t &n,
         llamad_state_error *error) {
    std::vector<Part> pieces;
    if (!has_cells(layout)) return wrong(error, "a recurrent state cannot be cut");
    if (p0 < 0 || p0 >= p1) return wrong(error, "there are no positions from %d to %d", p0, p1);
    if (!read_piece(layout, state, p0, p1, pieces, error)) return false;
    const Part &piece = pieces[0];
    if (layout.sections[0].ext != Ext::POSITION && (piece.pos_first != p0 || piece.pos_last != p1 - 1)) {
        return wrong(error, "of positions %d to %d it has only %d to %d", p0, p1 - 1, piece.pos_first, piece.pos_last);
    }
    n = put_state(layout, pieces, {}, false, 0, out, n_out);
    return true;
}

bool copy_end(const llamad_layout &layout, llamad_piece state, uint8_t *out, size_t n_out, size_t &n,
              llamad_state_error *error) {
    std::vector<Part> end;
    if (!has_end(layout)) return wrong(error, "states of this model have no end");
    if (!read_end(layout, state, true, -1, end, error)) return false;
    n = put_state(layout, {}, end, true, 0, out, n_out);
    return true;
}

bool join(const llamad_layout &layout, const llamad_piece *inputs, size_t n_inputs, int32_t p1, llamad_piece end_input,
          int32_t seq, uint8_t *out, size_t n_out, size_t &n, llamad_state_error *error) {
    std::vector<Part> pieces, end;
    const uint32_t n_seqs = layout.n_stream > 1 ? layout.n_stream : STREAMS_MAX;
    if (seq < 0 || static_cast<uint32_t>(seq) >= n_seqs)
        return wrong(error, "there is no sequence %d, the last one is %u", seq, n_seqs - 1);
    if (!has_cells(layout) && n_inputs) return wrong(error, "a recurrent state has no pieces, only an end");
    if (!has_cells(layout) && end_input.data == nullptr) return wrong(error, "a recurrent state needs its end");
    if (has_cells(layout) && n_inputs == 0) return wrong(error, "there are no pieces to join");
    if (!read_pieces(layout, inputs, n_inputs, p1, pieces, error)) return false;
    if (end_input.data != nullptr) {
        llamad_state_error own;
        const int32_t pos = pieces.empty() ? -1 : pieces.back().pos_last;
        if (!has_end(layout)) return wrong(error, "states of this model have no end");
        if (!read_end(layout, end_input, false, pos, end, &own)) return wrong(error, "the end: %.200s", own.reason);
    }
    n = put_state(layout, pieces, end, false, seq, out, n_out);
    return true;
}

// A part that only takes up room.
Part gap(int32_t n_cells) {
    Part part;
    part.n_used = static_cast<uint32_t>(n_cells);
    return part;
}

bool place(const llamad_layout &layout, llamad_piece input, int32_t p0, int32_t p1, int32_t n_cells,
           llamad_piece end_input, uint8_t *out, size_t n_out, size_t &n, llamad_state_error *error) {
    std::vector<Part> pieces, end;
    if (!has_cells(layout)) return wrong(error, "a recurrent state has no pieces, only an end");
    if (p0 < 0 || p0 >= p1 || p1 > n_cells) return wrong(error, "of %d cells none are %d to %d", n_cells, p0, p1 - 1);
    if (!read_piece(layout, input, 0, POS_MAX, pieces, error)) return false;
    const Part &piece = pieces[0];
    if (piece.pos_first != p0 || piece.pos_last != p1 - 1 || piece.n_used != static_cast<uint32_t>(p1 - p0)) {
        return wrong(error, "it has %u cells at positions %d to %d instead of those from %d to %d", piece.n_used,
                     piece.pos_first, piece.pos_last, p0, p1 - 1);
    }
    if (p0 > 0) pieces.insert(pieces.begin(), gap(p0));
    if (p1 < n_cells) pieces.push_back(gap(n_cells - p1));
    if (end_input.data != nullptr) {
        llamad_state_error own;
        if (!has_end(layout)) return wrong(error, "states of this model have no end");
        if (!read_end(layout, end_input, false, n_cells - 1, end, &own))
            return wrong(error, "the end: %.200s", own.reason);
    }
    n = put_state(layout, pieces, end, false, 0, out, n_out, p0 == 0);
    return true;
}

template <typename Call> int64_t guarded(llamad_state_error *error, Call call) {
    error->reason[0] = 0;
    try {
        size_t n = 0;
        return call(n) ? static_cast<int64_t>(n) : int64_t{LLAMAD_STATE_E_WRONG};
    } catch (const std::bad_alloc &) {
        wrong(error, "memory ran out while a state was cut or joined");
        return LLAMAD_STATE_E_MEMORY;
    }
}

} // namespace

extern "C" {

int32_t llamad_layout_has_cells(const llamad_layout *layout) { return has_cells(*layout); }

int32_t llamad_layout_has_end(const llamad_layout *layout) { return has_end(*layout); }

int32_t llamad_layout_has_ranges(const llamad_layout *layout) {
    return layout->n_stream == 1 && has_cells(*layout) && !has_end(*layout) && layout->sections[0].v_trans == 0;
}

size_t llamad_piece_bytes(const llamad_layout *layout, uint32_t n_cells) {
    size_t n = BLOB_HEAD;
    for (size_t i = 0; i < layout->sections.size(); i++) {
        const Section &section = layout->sections[i];
        n += section.is_recurrent ? recurrent_bytes(section, 0) : kv_bytes(*layout, section, i == 0 ? n_cells : 0);
    }
    return n;
}

int64_t llamad_piece_cut(const llamad_layout *layout, llamad_piece state, int32_t p0, int32_t p1, uint8_t *out,
                         size_t n_out, llamad_state_error *error) {
    return guarded(error, [&](size_t &n) { return cut(*layout, state, p0, p1, out, n_out, n, error); });
}

int64_t llamad_piece_end(const llamad_layout *layout, llamad_piece state, uint8_t *out, size_t n_out,
                         llamad_state_error *error) {
    return guarded(error, [&](size_t &n) { return copy_end(*layout, state, out, n_out, n, error); });
}

int64_t llamad_piece_join(const llamad_layout *layout, const llamad_piece *pieces, size_t n_pieces, int32_t p1,
                          llamad_piece end, int32_t seq, uint8_t *out, size_t n_out, llamad_state_error *error) {
    return guarded(error,
                   [&](size_t &n) { return join(*layout, pieces, n_pieces, p1, end, seq, out, n_out, n, error); });
}

int64_t llamad_piece_place(const llamad_layout *layout, llamad_piece piece, int32_t p0, int32_t p1, int32_t n_cells,
                           llamad_piece end, uint8_t *out, size_t n_out, llamad_state_error *error) {
    return guarded(error, [&](size_t &n) { return place(*layout, piece, p0, p1, n_cells, end, out, n_out, n, error); });
}
}
