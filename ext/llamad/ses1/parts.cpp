// Reads the sections of a state and selects cells.
//
// Invariant: every offset comes from a header or a count that was compared with the layout and with the length of the
// input. Counts and positions are read once, because another process may change them after the check.
#include "parts.hpp"

#include <algorithm>

namespace llamad::state {

namespace {

bool read_all_rows(Reader &in, const Section &section, Part &part, llamad_state_error *error) {
    if (!enter_layers(in, section, error)) return false;
    const auto read = [&](const std::vector<Rows> &all, const char *what, std::vector<size_t> &at) {
        for (size_t i = 0; i < all.size(); i++) {
            if (!enter_rows(in, all[i], part.n_cells, what, i, error)) return false;
            at.push_back(in.at());
            in.skip(all[i].bytes * part.n_cells);
        }
        return true;
    };
    return read(section.k, section.is_recurrent ? "recurrent rows" : "keys", part.k_at) &&
           read(section.v, "values", part.v_at);
}

bool read_kv(Reader &in, const Section &section, Part &part, llamad_state_error *error) {
    if (!in.has(4)) return wrong(error, "it ends before its streams");
    const uint32_t n_stream = in.u32();
    if (n_stream == 0 || n_stream > STREAMS_MAX) return wrong(error, "it has %u streams", n_stream);
    for (uint32_t s = 0; s < n_stream; s++) {
        if (!in.has(4)) return wrong(error, "it ends within its %u streams", n_stream);
        const uint32_t n_cells = in.u32();
        if (n_cells == 0) continue;
        if (part.n_cells) return wrong(error, "more than one of its streams is filled");
        if (!in.has(uint64_t{n_cells} * cell_bytes(section)))
            return wrong(error, "it ends within its %u cells", n_cells);
        part.n_cells = n_cells;
        part.cells_at = in.at();
        in.skip(n_cells * cell_bytes(section));
        if (!read_all_rows(in, section, part, error)) return false;
    }
    return true;
}

bool read_recurrent(Reader &in, const Section &section, Part &part, llamad_state_error *error) {
    if (!in.has(4)) return wrong(error, "it ends before its recurrent state");
    part.n_cells = in.u32();
    if (part.n_cells > 1) return wrong(error, "it has %u recurrent states", part.n_cells);
    if (part.n_cells) {
        if (!in.has(8)) return wrong(error, "it ends within its recurrent state");
        part.pos_first = part.pos_last = in.i32();
        if (part.pos_last < 0) return wrong(error, "its recurrent state is of position %d", part.pos_last);
        const uint32_t n_seq_id = in.u32();
        if (n_seq_id != 0) return wrong(error, "its recurrent state belongs to %u sequences", n_seq_id);
        part.n_used = 1;
    }
    return read_all_rows(in, section, part, error);
}

struct Cell {
    int32_t pos;
    uint32_t index;
};

bool read_cells(const Section &section, const Part &part, int32_t p0, int32_t p1, std::vector<Cell> &cells,
                llamad_state_error *error) {
    const size_t n_bytes = cell_bytes(section);
    Reader in(part.data + part.cells_at, part.n_cells * n_bytes);
    for (uint32_t i = 0; i < part.n_cells; i++) {
        const int32_t pos = in.i32();
        const uint32_t n_seq_id = in.u32();
        if (pos < 0 || pos == POS_MAX) return wrong(error, "cell %u has position %d", i, pos);
        if (n_seq_id != 1) return wrong(error, "cell %u belongs to %u sequences", i, n_seq_id);
        if (p0 <= pos && pos < p1) cells.push_back({pos, i});
        in.skip(n_bytes - 8);
    }
    return true;
}

void use(Part &part, const std::vector<Cell> &cells) {
    for (const Cell &cell : cells) {
        if (!part.runs.empty() && part.runs.back().begin + part.runs.back().n == cell.index) {
            part.runs.back().n++;
        } else {
            part.runs.push_back({cell.index, 1});
        }
    }
    part.n_used = static_cast<uint32_t>(cells.size());
}

} // namespace

bool read_parts(const llamad_layout &layout, llamad_piece input, size_t first, std::vector<Part> &parts,
                llamad_state_error *error) {
    Reader in(input.data, input.n);
    if (!in.has(BLOB_HEAD) || in.u32() != BLOB_MAGIC) return wrong(error, "it is no state of llama.cpp");
    in.skip(4);
    for (size_t i = first; i < layout.sections.size(); i++) {
        const Section &section = layout.sections[i];
        parts.emplace_back();
        parts.back().data = input.data;
        if (!(section.is_recurrent ? read_recurrent : read_kv)(in, section, parts.back(), error)) return false;
    }
    if (in.left()) return wrong(error, "%zu bytes too many follow it", in.left());
    return true;
}

bool use_positions(const Section &section, Part &part, int32_t p0, int32_t p1, llamad_state_error *error) {
    std::vector<Cell> cells;
    if (!read_cells(section, part, p0, p1, cells, error)) return false;
    if (cells.empty()) return wrong(error, "it has no cells at these positions");
    const auto is_before = [](const Cell &a, const Cell &b) { return a.pos < b.pos; };
    if (!std::is_sorted(cells.begin(), cells.end(), is_before)) {
        std::stable_sort(cells.begin(), cells.end(), is_before);
    }
    for (size_t i = 1; i < cells.size(); i++) {
        if (may_follow(section, cells[i - 1].pos, cells[i].pos)) continue;
        if (cells[i - 1].pos == cells[i].pos) return wrong(error, "position %d is there twice", cells[i].pos);
        return wrong(error, "position %d is missing", cells[i - 1].pos + 1);
    }
    part.pos_first = cells.front().pos;
    part.pos_last = cells.back().pos;
    use(part, cells);
    return true;
}

bool use_all(const Section &section, Part &part, llamad_state_error *error) {
    std::vector<Cell> cells;
    if (!read_cells(section, part, 0, POS_MAX, cells, error)) return false;
    for (const Cell &cell : cells) part.pos_last = std::max(part.pos_last, cell.pos);
    use(part, cells);
    return true;
}

} // namespace llamad::state
