// Compares the headers in a saved state with the layout that this model's states have.
#include "layout.hpp"

namespace llamad::state {

bool enter_layers(Reader &in, const Section &section, llamad_state_error *error) {
    const char *kind = section.is_recurrent ? "recurrent " : "";
    if (!in.has(8)) return wrong(error, "it ends before its %slayers", kind);
    const uint32_t is_transposed = in.u32(), n_layer = in.u32();
    if (section.is_recurrent && is_transposed) return wrong(error, "its recurrent state is transposed");
    if (!section.is_recurrent && is_transposed != section.v_trans) {
        return wrong(error, "it was saved with flash attention %s, but this cache has it %s",
                     is_transposed ? "off" : "on", section.v_trans ? "off" : "on");
    }
    if (n_layer != section.n_layer) {
        return wrong(error, "it has %u layers, but this model%s has %u", n_layer,
                     section.is_recurrent ? "" : "'s cache", section.n_layer);
    }
    return true;
}

bool enter_rows(Reader &in, const Rows &rows, uint32_t n_cells, const char *what, size_t layer,
                llamad_state_error *error) {
    if (!in.has(12)) return wrong(error, "it ends before the %s of layer %zu", what, layer);
    const int32_t type = in.i32();
    if (type != rows.type) {
        return wrong(error, "the %s of layer %zu are of type %d, but this cache's are %s (%d)", what, layer, type,
                     type_name(rows.type), rows.type);
    }
    if (rows.n_elements) {
        const uint32_t element = in.u32(), n_elements = in.u32();
        if (element != rows.element || n_elements != rows.n_elements) {
            return wrong(error, "the %s of layer %zu have %u dimensions of %u bytes, but this model's have %u of %u",
                         what, layer, n_elements, element, rows.n_elements, rows.element);
        }
    } else {
        const uint64_t bytes = in.u64();
        if (bytes != rows.bytes) {
            return wrong(error, "the %s of layer %zu have rows of %llu bytes, but this model's have %llu", what, layer,
                         static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(rows.bytes));
        }
    }
    // The product does not overflow: rows are below 2^30 bytes, cells below 2^32.
    if (!in.has(rows.bytes * n_cells)) return wrong(error, "it ends within the %s of layer %zu", what, layer);
    return true;
}

} // namespace llamad::state
