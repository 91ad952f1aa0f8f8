/* Cuts sequence states into pieces and joins them again. Any thread may call it; nothing here touches llama.cpp.
 *
 * A state, as llama.cpp's per-sequence call writes it (without SES1's tokens), has up to two parts:
 *   cells  what attention keeps of each token. They can be cut between any two positions.
 *   end    sliding windows and recurrent states. They belong to the last token and cannot be cut. By itself the end is
 *          what llama.cpp writes with LLAMAD_STATE_PARTIAL, so every checkpoint is one.
 * A piece has the cells of some positions and an empty end. llama.cpp restores it like any state; the sequence can
 * continue once it has all positions from 0 and the end of the last one.
 *
 * Positions are those of llama.cpp, which for text are the indexes of tokens. Cells are selected by their position,
 * because a unified cache writes them in the order of the cache. Pieces have them in the order of positions. So if the
 * cells of a state were in that order, its pieces and its end join to the same bytes again.
 *
 * Every input is compared with the layout before it is used, and nothing is read or written out of bounds. Values are
 * not looked at: a state from outside must also pass llamad_state_check() before llama.cpp gets it.
 *
 * cut, end, join and place return the size of their result, or a negative error and a reason. They write the result only if
 * n_out is at least that size, so a first call with n_out 0 measures it.
 */
#ifndef LLAMAD_PIECES_H
#define LLAMAD_PIECES_H

#include "state.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct llamad_piece {
    const uint8_t *data;
    size_t n;
} llamad_piece;

/* Return whether states have cells, and whether they have an end. */
int32_t llamad_layout_has_cells(const llamad_layout *layout);
int32_t llamad_layout_has_end(const llamad_layout *layout);
/* Returns whether a unified cache can save and restore ranges of a sequence at about the speed of whole ones: there is
 * no end, and values are not transposed, because llama.cpp copies each of their rows by itself. */
int32_t llamad_layout_has_ranges(const llamad_layout *layout);
/* Returns the size of a piece with this many cells. */
size_t llamad_piece_bytes(const llamad_layout *layout, uint32_t n_cells);

/* Cuts out the cells at positions p0 to p1 - 1, which the state must have. The piece is written for sequence 0. */
int64_t llamad_piece_cut(const llamad_layout *layout, llamad_piece state, int32_t p0, int32_t p1, uint8_t *out,
                         size_t n_out, llamad_state_error *error);
/* Copies the end of a state. It is written for sequence 0. */
int64_t llamad_piece_end(const llamad_layout *layout, llamad_piece state, uint8_t *out, size_t n_out,
                         llamad_state_error *error);
/* Joins the cells before position p1 of pieces that follow each other. With an end, which must be of the last of these
 * positions, the result is a whole state; without one (data is NULL) it is a larger piece. A whole state can be used as a piece; its own end is left out. The
 * result is written for the sequence `seq`. Pieces that were saved with another number of slots are accepted. */
int64_t llamad_piece_join(const llamad_layout *layout, const llamad_piece *pieces, size_t n_pieces, int32_t p1,
                          llamad_piece end, int32_t seq, uint8_t *out, size_t n_out, llamad_state_error *error);
/* Writes one of these pieces where it belongs in the result of joining them, for sequence 0. Several threads may do
 * so at once, each with another piece. The piece must have the positions p0 to p1 - 1, and no others; the result has
 * those from 0 to n_cells - 1. Only the first piece (p0 is 0) writes what is around the cells and rows, and the end. The others are
 * given the same end, because the size depends on it. n_out must be at least the size, or nothing is written. */
int64_t llamad_piece_place(const llamad_layout *layout, llamad_piece piece, int32_t p0, int32_t p1, int32_t n_cells,
                           llamad_piece end, uint8_t *out, size_t n_out, llamad_state_error *error);

#ifdef __cplusplus
}
#endif
#endif
