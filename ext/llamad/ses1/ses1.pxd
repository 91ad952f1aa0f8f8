# The check of states for compiled code.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

cdef extern from "llamad/ses1/state.h" nogil:
    ctypedef struct llamad_layout:
        pass

cdef extern from "llamad/ses1/pieces.h" nogil:
    ctypedef struct llamad_piece:
        const uint8_t *data
        size_t n

cdef class Layout:
    """The layout in which llama.cpp writes the running model's memory, learned from its states of one token and of two.
    n_window is the number of tokens in its sliding window, 0 without one."""

    cdef llamad_layout *layout

cdef int state_is_sound(const llamad_layout *layout, const uint8_t *data, size_t n, uint32_t n_vocab, uint32_t n_ctx,
                        uint32_t n_tokens) noexcept nogil
cdef int segment_is_sound(const llamad_layout *layout, const uint8_t *data, size_t n, uint32_t n_vocab, uint32_t n_ctx,
                          uint32_t begin, uint32_t n_tokens) noexcept nogil
cdef int end_is_sound(const llamad_layout *layout, const uint8_t *data, size_t n, uint32_t n_vocab, uint32_t n_ctx,
                      uint32_t n_tokens) noexcept nogil
cdef int layout_has_cells(const llamad_layout *layout) noexcept nogil
cdef int layout_has_end(const llamad_layout *layout) noexcept nogil
cdef int layout_has_ranges(const llamad_layout *layout) noexcept nogil
cdef size_t piece_bytes(const llamad_layout *layout, uint32_t n_cells) noexcept nogil
cdef int64_t piece_cut(const llamad_layout *layout, llamad_piece state, int32_t p0, int32_t p1, uint8_t *out,
                       size_t n_out) noexcept nogil
cdef int64_t piece_end(const llamad_layout *layout, llamad_piece state, uint8_t *out, size_t n_out) noexcept nogil
cdef int64_t piece_join(const llamad_layout *layout, const llamad_piece *pieces, size_t n_pieces, int32_t p1,
                        llamad_piece end, int32_t seq, uint8_t *out, size_t n_out) noexcept nogil
cdef int checkpoint_is_sound(const llamad_layout *layout, const uint8_t *data, size_t n,
                             uint32_t n_tokens) noexcept nogil
