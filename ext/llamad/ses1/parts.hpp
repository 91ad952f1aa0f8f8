// The sections of one input for pieces.cpp: where their cells and rows lie, and which cells are used. No thread of its
// own, and no memory but the lists; the input must outlive them.
#pragma once
#include "layout.hpp"
#include "pieces.h"

namespace llamad::state {

constexpr int32_t POS_MAX = INT32_MAX; // no cell has it

// Cells that follow each other in the input and in the result.
struct Run {
    uint32_t begin, n;
};

struct Part {
    const uint8_t *data = nullptr; // the whole input, from which all offsets count
    uint32_t n_cells = 0;
    size_t cells_at = 0;
    std::vector<size_t> k_at, v_at; // of a recurrent section, all rows are in k_at
    // The cells that are used, in the order of the result.
    std::vector<Run> runs;
    uint32_t n_used = 0;
    int32_t pos_first = -1, pos_last = -1;
};

inline size_t cell_bytes(const Section &section) { return section.ext == Ext::NONE ? 12 : 24; }

// Whether b may be the position of the next cell after a's. With M-RoPE the tokens of an image share a position, and
// leave others out.
inline bool may_follow(const Section &section, int32_t a, int32_t b) {
    return section.ext == Ext::POSITION ? a <= b : a + 1 == b;
}

// Reads the sections from `first` on, which must fill the input. A recurrent one is used; cells are not used yet.
bool read_parts(const llamad_layout &layout, llamad_piece input, size_t first, std::vector<Part> &parts,
                llamad_state_error *error);
// Uses the cells at positions p0 to p1 - 1, in the order of positions. At least one must be there, and none may be
// missing between them.
bool use_positions(const Section &section, Part &part, int32_t p0, int32_t p1, llamad_state_error *error);
// Uses all cells, in the order of the input.
bool use_all(const Section &section, Part &part, llamad_state_error *error);

} // namespace llamad::state
