// Checks a saved state from outside completely against the layout, and rewrites one that was saved with another number
// of slots.
//
// Invariant: a state that passes has exactly the headers, lengths and types that llama.cpp would write for this model,
// tokens of this vocabulary, each position once, and only finite values of a sane size. Every read is bounded by the
// length of the state.
#include <new>

#include "layout.hpp"

using namespace llamad::state;

namespace {

// The offsets of a section. Its stream header may have to be rewritten; the body is copied.
struct Place {
    size_t begin, body, body_end, end;
};

constexpr uint32_t ALL = UINT32_MAX; // a section with a cell for every token

struct Blob {
    uint32_t n_tokens = 0, n_stream = 0;
    uint32_t begin = 0; // the position of the first cell that it has
    size_t tokens_at = 0, kv_at = 0;
    std::vector<Place> places;
};

bool check_tokens(Reader &in, Blob &blob, uint32_t n_vocab, uint32_t n_ctx, llamad_state_error *error) {
    if (!in.has(sizeof SES1_MAGIC) || std::memcmp(in.here(), SES1_MAGIC, sizeof SES1_MAGIC) != 0) {
        return wrong(error, "it does not begin with \"SES1\"");
    }
    if (!in.has(SES1_HEAD)) return wrong(error, "it ends within its first %zu bytes", SES1_HEAD);
    in.skip(4);
    blob.n_tokens = in.u32();
    if (blob.n_tokens > n_ctx) {
        return wrong(error, "it holds %u tokens, but a slot's context holds %u", blob.n_tokens, n_ctx);
    }
    blob.tokens_at = in.at();
    if (!in.has(uint64_t{blob.n_tokens} * 4)) return wrong(error, "it ends within its %u tokens", blob.n_tokens);
    for (uint32_t i = 0; i < blob.n_tokens; i++) {
        const int32_t token = in.i32();
        if (token == -1) return wrong(error, "token %u stands for an image or a sound, which cannot be restored", i);
        if (token < 0 || static_cast<uint32_t>(token) >= n_vocab) {
            return wrong(error, "token %u is %d, but this model's tokens are 0 to %u", i, token, n_vocab - 1);
        }
    }
    return true;
}

bool check_rows(Reader &in, const Rows &rows, uint32_t n_cells, const char *what, size_t layer,
                llamad_state_error *error) {
    if (!enter_rows(in, rows, n_cells, what, layer, error)) return false;
    const size_t n = rows.bytes * n_cells;
    if (!is_finite(rows.type, in.here(), n)) {
        return wrong(error, "the %s of layer %zu hold values that are not finite, or too large", what, layer);
    }
    in.skip(n);
    return true;
}

bool check_ext(Reader &in, const Section &section, const Blob &blob, const uint8_t *tokens, int32_t pos,
               llamad_state_error *error) {
    const int32_t x = in.i32(), y = in.i32(), token = in.i32();
    const int32_t expected = section.ext == Ext::POSITION ? pos : 0;
    if (x != expected || y != expected) return wrong(error, "the cell of position %d is not a text token's", pos);
    int32_t own = -1;
    if (section.has_tokens && !tokens) return true; // a checkpoint does not have the list
    if (section.has_tokens && static_cast<uint32_t>(pos) < blob.n_tokens)
        std::memcpy(&own, tokens + size_t(pos) * 4, 4);
    if (token != own) return wrong(error, "the cell of position %d names another token than the list", pos);
    return true;
}

// Checks that every position of the sequence, or of its last n_cells tokens, occurs exactly once, in any order.
bool check_cells(Reader &in, const Section &section, const Blob &blob, const uint8_t *tokens, uint32_t n_cells,
                 llamad_state_error *error) {
    const bool has_ext = section.ext != Ext::NONE;
    if (!in.has(uint64_t{n_cells} * (has_ext ? 24 : 12))) return wrong(error, "it ends within its %u cells", n_cells);
    const uint32_t first = blob.n_tokens - n_cells;
    std::vector<bool> seen(n_cells);
    for (uint32_t i = 0; i < n_cells; i++) {
        const int32_t pos = in.i32();
        const uint32_t n_seq_id = in.u32();
        if (pos < 0 || static_cast<uint32_t>(pos) < first || static_cast<uint32_t>(pos) >= blob.n_tokens) {
            return wrong(error, "cell %u has position %d, outside its %u tokens", i, pos, blob.n_tokens);
        }
        if (seen[static_cast<uint32_t>(pos) - first]) return wrong(error, "position %d is there twice", pos);
        seen[static_cast<uint32_t>(pos) - first] = true;
        if (n_seq_id != 1) return wrong(error, "cell %u belongs to %u sequences", i, n_seq_id);
        if (has_ext && !check_ext(in, section, blob, tokens, pos, error)) return false;
        const int32_t seq_id = in.i32();
        if (seq_id < 0 || static_cast<uint32_t>(seq_id) >= STREAMS_MAX) {
            return wrong(error, "cell %u belongs to sequence %d", i, seq_id);
        }
    }
    return true;
}

bool check_body(Reader &in, const Section &section, const Blob &blob, const uint8_t *tokens, uint32_t n_cells,
                llamad_state_error *error) {
    if (!check_cells(in, section, blob, tokens, n_cells, error)) return false;
    if (!enter_layers(in, section, error)) return false;
    for (size_t i = 0; i < section.k.size(); i++) {
        if (!check_rows(in, section.k[i], n_cells, "keys", i, error)) return false;
    }
    for (size_t i = 0; i < section.v.size(); i++) {
        if (!check_rows(in, section.v[i], n_cells, "values", i, error)) return false;
    }
    return true;
}

bool check_kv(Reader &in, const Section &section, Blob &blob, const uint8_t *tokens, uint32_t n_window,
              llamad_state_error *error) {
    Place place{in.at(), 0, 0, 0};
    if (!in.has(4)) return wrong(error, "it ends before its streams");
    const uint32_t n_stream = in.u32();
    if (n_stream == 0 || n_stream > STREAMS_MAX) return wrong(error, "it has %u streams", n_stream);
    if (blob.n_stream != 0 && blob.n_stream != n_stream) return wrong(error, "its sections differ in their streams");
    blob.n_stream = n_stream;
    bool is_filled = false;
    for (uint32_t s = 0; s < n_stream; s++) {
        if (!in.has(4)) return wrong(error, "it ends within its %u streams", n_stream);
        const uint32_t n_cells = in.u32();
        if (n_cells == 0) continue;
        if (is_filled) return wrong(error, "more than one of its streams is filled");
        is_filled = true;
        const uint32_t n_own = blob.n_tokens - blob.begin;
        if (n_cells > n_own || (n_window == ALL && n_cells != n_own)) {
            return wrong(error, "it has %u cells for %u tokens", n_cells, n_own);
        }
        if (n_cells > n_window) {
            return wrong(error, "it has %u cells in a window, but this model's holds %u", n_cells, n_window);
        }
        place.body = in.at() - 4;
        if (!check_body(in, section, blob, tokens, n_cells, error)) return false;
        place.body_end = in.at();
    }
    if (is_filled != (blob.n_tokens > 0)) return wrong(error, "it has no cells for its %u tokens", blob.n_tokens);
    place.end = in.at();
    blob.places.push_back(place);
    return true;
}

bool check_recurrent(Reader &in, const Section &section, Blob &blob, llamad_state_error *error) {
    Place place{in.at(), in.at(), 0, 0};
    if (!in.has(4)) return wrong(error, "it ends before its recurrent state");
    const uint32_t n_cells = in.u32();
    if (n_cells != (blob.n_tokens > 0 ? 1u : 0u)) return wrong(error, "it has %u recurrent states", n_cells);
    if (n_cells) {
        if (!in.has(8)) return wrong(error, "it ends within its recurrent state");
        const int32_t pos = in.i32();
        const uint32_t n_seq_id = in.u32();
        if (pos != static_cast<int32_t>(blob.n_tokens) - 1)
            return wrong(error, "its recurrent state is of position %d", pos);
        if (n_seq_id != 0) return wrong(error, "its recurrent state belongs to %u sequences", n_seq_id);
    }
    if (!enter_layers(in, section, error)) return false;
    for (size_t i = 0; i < section.k.size(); i++) {
        if (!check_rows(in, section.k[i], n_cells, "recurrent rows", i, error)) return false;
    }
    place.body_end = place.end = in.at();
    blob.places.push_back(place);
    return true;
}

// Checks the sections of a state, or with is_partial those of a checkpoint, and that nothing follows them.
bool check_sections(Reader &in, const llamad_layout &layout, const uint8_t *tokens, bool is_partial, Blob &blob,
                    llamad_state_error *error) {
    uint32_t n_window = ALL; // the first section has all cells, the second only those of the window
    for (const Section &section : layout.sections) {
        const bool is_left_out = is_partial && !section.is_recurrent && n_window == ALL;
        const bool is_right = is_left_out ||
                              (section.is_recurrent ? check_recurrent(in, section, blob, error)
                                                    : check_kv(in, section, blob, tokens, n_window, error));
        if (!is_right) return false;
        n_window = layout.n_window ? layout.n_window : ALL - 1;
    }
    if (in.left()) return wrong(error, "%zu bytes too many follow it", in.left());
    return true;
}

// Checks the sections of a piece: the cells of its own tokens, and an empty end.
bool check_piece(Reader &in, const llamad_layout &layout, const uint8_t *tokens, Blob &blob,
                 llamad_state_error *error) {
    Blob none;
    if (layout.sections.empty() || layout.sections[0].is_recurrent) return wrong(error, "this model has no pieces");
    if (!check_kv(in, layout.sections[0], blob, tokens, ALL, error)) return false;
    none.n_stream = blob.n_stream;
    for (size_t i = 1; i < layout.sections.size(); i++) {
        const Section &section = layout.sections[i];
        if (!(section.is_recurrent ? check_recurrent(in, section, none, error)
                                   : check_kv(in, section, none, nullptr, ALL, error)))
            return false;
    }
    if (in.left()) return wrong(error, "%zu bytes too many follow it", in.left());
    return true;
}

bool check_head(Reader &in, llamad_state_error *error) {
    if (!in.has(BLOB_HEAD) || in.u32() != BLOB_MAGIC) return wrong(error, "no state of llama.cpp follows its tokens");
    in.skip(4); // the number of the sequence, which llama.cpp ignores
    return true;
}

bool check(const llamad_layout &layout, const uint8_t *data, size_t n, uint32_t n_vocab, uint32_t n_ctx, Blob &blob,
           llamad_state_error *error) {
    Reader in(data, n);
    if (!check_tokens(in, blob, n_vocab, n_ctx, error)) return false;
    blob.kv_at = in.at();
    if (!check_head(in, error)) return false;
    return check_sections(in, layout, data + blob.tokens_at, false, blob, error);
}

size_t rewritten_bytes(const llamad_layout &layout, const Blob &blob, size_t n) {
    for (size_t i = 0; i < blob.places.size(); i++) {
        if (!layout.sections[i].is_recurrent) n = n - size_t{blob.n_stream} * 4 + size_t{layout.n_stream} * 4;
    }
    return n;
}

uint8_t *put(uint8_t *out, const void *data, size_t n) {
    if (n) std::memcpy(out, data, n);
    return out + n;
}

uint8_t *put_kv(uint8_t *out, const llamad_layout &layout, const uint8_t *data, const Place &place) {
    out = put(out, &layout.n_stream, 4);
    if (place.body) out = put(out, data + place.body, place.body_end - place.body);
    const size_t n_empty = size_t{layout.n_stream - (place.body ? 1u : 0u)} * 4;
    std::memset(out, 0, n_empty);
    return out + n_empty;
}

} // namespace

extern "C" {

int32_t llamad_state_check(const llamad_layout *layout, const uint8_t *data, size_t n, uint32_t n_vocab, uint32_t n_ctx,
                           uint32_t *n_tokens, size_t *n_bytes, llamad_state_error *error) {
    error->reason[0] = 0;
    try {
        Blob blob;
        if (!check(*layout, data, n, n_vocab, n_ctx, blob, error)) return LLAMAD_STATE_E_WRONG;
        *n_tokens = blob.n_tokens;
        *n_bytes = rewritten_bytes(*layout, blob, n);
        return 0;
    } catch (const std::bad_alloc &) {
        wrong(error, "memory ran out while it was checked");
        return LLAMAD_STATE_E_MEMORY;
    }
}

int32_t llamad_segment_check(const llamad_layout *layout, const uint8_t *data, size_t n, uint32_t n_vocab,
                             uint32_t n_ctx, uint32_t begin, uint32_t n_tokens, llamad_state_error *error) {
    error->reason[0] = 0;
    try {
        Blob blob;
        Reader in(data, n);
        blob.begin = begin;
        if (!check_tokens(in, blob, n_vocab, n_ctx, error)) return LLAMAD_STATE_E_WRONG;
        if (blob.n_tokens != n_tokens || begin >= n_tokens) {
            wrong(error, "it has %u tokens instead of %u", blob.n_tokens, n_tokens);
            return LLAMAD_STATE_E_WRONG;
        }
        if (!check_head(in, error) || !check_piece(in, *layout, data + blob.tokens_at, blob, error))
            return LLAMAD_STATE_E_WRONG;
        return blob.n_stream == layout->n_stream ? 0 : LLAMAD_STATE_E_WRONG;
    } catch (const std::bad_alloc &) {
        wrong(error, "memory ran out while it was checked");
        return LLAMAD_STATE_E_MEMORY;
    }
}

int32_t llamad_end_check(const llamad_layout *layout, const uint8_t *data, size_t n, uint32_t n_vocab, uint32_t n_ctx,
                         uint32_t n_tokens, llamad_state_error *error) {
    error->reason[0] = 0;
    try {
        Blob blob;
        Reader in(data, n);
        if (!check_tokens(in, blob, n_vocab, n_ctx, error)) return LLAMAD_STATE_E_WRONG;
        if (blob.n_tokens != n_tokens) {
            wrong(error, "it has %u tokens instead of %u", blob.n_tokens, n_tokens);
            return LLAMAD_STATE_E_WRONG;
        }
        if (!check_head(in, error) || !check_sections(in, *layout, data + blob.tokens_at, true, blob, error))
            return LLAMAD_STATE_E_WRONG;
        return blob.n_stream == 0 || blob.n_stream == layout->n_stream ? 0 : LLAMAD_STATE_E_WRONG;
    } catch (const std::bad_alloc &) {
        wrong(error, "memory ran out while it was checked");
        return LLAMAD_STATE_E_MEMORY;
    }
}

int32_t llamad_checkpoint_check(const llamad_layout *layout, const uint8_t *data, size_t n, uint32_t n_tokens,
                                llamad_state_error *error) {
    error->reason[0] = 0;
    try {
        Reader in(data, n);
        Blob blob;
        blob.n_tokens = n_tokens;
        if (!check_head(in, error) || !check_sections(in, *layout, nullptr, true, blob, error))
            return LLAMAD_STATE_E_WRONG;
        return blob.n_stream == 0 || blob.n_stream == layout->n_stream ? 0 : LLAMAD_STATE_E_WRONG;
    } catch (const std::bad_alloc &) {
        wrong(error, "memory ran out while it was checked");
        return LLAMAD_STATE_E_MEMORY;
    }
}

int32_t llamad_state_rewrite(const llamad_layout *layout, const uint8_t *data, size_t n, uint8_t *out, size_t n_out) {
    try {
        Blob blob;
        llamad_state_error error;
        if (!check(*layout, data, n, UINT32_MAX, UINT32_MAX, blob, &error)) return LLAMAD_STATE_E_WRONG;
        // The engine shares this memory and may have changed the state since llamad_state_check() measured it.
        if (rewritten_bytes(*layout, blob, n) != n_out) return LLAMAD_STATE_E_WRONG;
        out = put(out, data, blob.kv_at + BLOB_HEAD);
        for (size_t i = 0; i < blob.places.size(); i++) {
            const Place &place = blob.places[i];
            out = layout->sections[i].is_recurrent ? put(out, data + place.begin, place.end - place.begin)
                                                   : put_kv(out, *layout, data, place);
        }
        return 0;
    } catch (const std::bad_alloc &) {
        return LLAMAD_STATE_E_MEMORY;
    }
}
}
