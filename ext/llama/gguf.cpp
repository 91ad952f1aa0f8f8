// Reads facts from a GGUF file before it is loaded. Owns nothing: each call opens the file's head and closes it again.
#include "shim.h"

#include "ggml-backend.h"
#include "ggml.h"
#include "gguf.h"

#include <algorithm>
#include <memory>
#include <string>

namespace {

using Head = std::unique_ptr<gguf_context, decltype(&gguf_free)>;
using Tensors = std::unique_ptr<ggml_context, decltype(&ggml_free)>;

// The tensors of INPUTS in llamad/engine/loading/placement.py: llama.cpp looks tokens up in them before the first
// layer. Some models have more such tensors (Gemma 3n has a table for each layer), but those are too large to move.
const char *const kInputs[] = {"token_embd.weight", "token_types.weight", "position_embd.weight"};

int64_t number(const gguf_context *file, int64_t id) {
    switch (gguf_get_kv_type(file, id)) {
        case GGUF_TYPE_UINT32: return gguf_get_val_u32(file, id);
        case GGUF_TYPE_INT32: return gguf_get_val_i32(file, id);
        case GGUF_TYPE_UINT64: return (int64_t) gguf_get_val_u64(file, id);
        default: return 0;
    }
}

// Returns a value of the architecture, or 0 if there is none. Of an array with a value for each layer it returns the
// largest.
int64_t value(const gguf_context *file, const std::string &key) {
    const int64_t id = gguf_find_key(file, key.c_str());
    if (id < 0) return 0;
    if (gguf_get_kv_type(file, id) != GGUF_TYPE_ARRAY) return number(file, id);
    const gguf_type type = gguf_get_arr_type(file, id);
    if (type != GGUF_TYPE_UINT32 && type != GGUF_TYPE_INT32) return 0;
    const auto *data = static_cast<const int32_t *>(gguf_get_arr_data(file, id));
    return gguf_get_arr_n(file, id) ? *std::max_element(data, data + gguf_get_arr_n(file, id)) : 0;
}

// Whether the device can look tokens up in all input tensors.
bool looks_up(ggml_backend_dev_t device, ggml_context *tensors) {
    ggml_init_params params{};
    params.mem_size = 16 * ggml_tensor_overhead();
    params.no_alloc = true;
    const Tensors made(ggml_init(params), ggml_free);
    for (const char *name : kInputs) {
        ggml_tensor *table = ggml_get_tensor(tensors, name);
        if (!table) continue;
        if (ggml_n_dims(table) > 2) return false;
        ggml_tensor *ids = ggml_new_tensor_1d(made.get(), GGML_TYPE_I32, 1);
        if (!ggml_backend_dev_supports_op(device, ggml_get_rows(made.get(), table, ids))) return false;
    }
    return true;
}

} // namespace

extern "C" {

int32_t llamad_gguf_has_tensor(const char *path, const char *name) {
    try {
        gguf_init_params params{};
        params.no_alloc = true;
        const Head file(gguf_init_from_file(path, params), gguf_free);
        if (!file) return -1;
        // The first file of a split model lists only its own tensors.
        const bool is_part = gguf_find_key(file.get(), "split.count") >= 0;
        return gguf_find_tensor(file.get(), name) >= 0 ? 1 : is_part ? -1 : 0;
    } catch (...) {
        return -1;
    }
}

int32_t llamad_gguf_shape_of(const char *path, ggml_backend_dev_t device, llamad_gguf_shape *shape) {
    try {
        ggml_context *made = nullptr;
        gguf_init_params params{};
        params.no_alloc = true;
        params.ctx = &made;
        const Head head(gguf_init_from_file(path, params), gguf_free);
        const Tensors tensors(made, ggml_free);
        const gguf_context *file = head.get();
        if (!file) return -1;
        const int64_t split = gguf_find_key(file, "split.count");
        if (split >= 0 && gguf_get_kv_type(file, split) == GGUF_TYPE_UINT16 && gguf_get_val_u16(file, split) > 1)
            return -1;
        const int64_t arch_id = gguf_find_key(file, "general.architecture");
        const ggml_tensor *tokens = ggml_get_tensor(tensors.get(), kInputs[0]);
        if (arch_id < 0 || gguf_get_kv_type(file, arch_id) != GGUF_TYPE_STRING || !tokens) return -1;
        const std::string arch = gguf_get_val_str(file, arch_id);
        shape->n_layer = value(file, arch + ".block_count");
        shape->n_embd = value(file, arch + ".embedding_length");
        shape->n_head = value(file, arch + ".attention.head_count");
        shape->n_head_kv = value(file, arch + ".attention.head_count_kv");
        shape->n_ctx_train = value(file, arch + ".context_length");
        shape->n_k = value(file, arch + ".attention.key_length");
        shape->n_v = value(file, arch + ".attention.value_length");
        shape->n_vocab = tokens->ne[1];
        shape->bytes = 0;
        for (int64_t i = 0; i < gguf_get_n_tensors(file); i++) shape->bytes += (int64_t) gguf_get_tensor_size(file, i);
        shape->device_looks_up = looks_up(device, tensors.get());
        return 0;
    } catch (...) {
        return -1;
    }
}
}
