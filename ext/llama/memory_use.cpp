// Reports what llama.cpp allocates on each device, or would allocate. Owns nothing. Threads: any, but one at a time for
// each context.
#include "ggml-backend.h"
#include "guarded.hpp"
#include "llama.h"
#include "media.h"
#include "mtmd.h"
#include "shim.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

// llama.cpp exports these without a public header.
struct llama_memory_breakdown_data {
    size_t model, context, compute;
};
std::map<ggml_backend_buffer_type_t, llama_memory_breakdown_data>
llama_get_memory_breakdown(const struct llama_context *ctx);
int32_t llama_model_n_expert(const struct llama_model *model);
int32_t llama_model_n_devices(const struct llama_model *model);
ggml_backend_dev_t llama_model_get_device(const struct llama_model *model, int i);
const std::vector<std::pair<std::string, ggml_tensor *>> &llama_internal_get_tensor_map(const llama_model *model);

namespace {

using Uses = std::map<ggml_backend_dev_t, llamad_memory_use>;

// Returns NULL for host memory. That includes a CPU backend's own layouts, and host pages that a GPU can read.
ggml_backend_dev_t place_of(ggml_backend_dev_t device) {
    return device && ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU ? nullptr : device;
}

ggml_backend_dev_t place_of(ggml_backend_buffer_type_t type) {
    return ggml_backend_buft_is_host(type) ? nullptr : place_of(ggml_backend_buft_get_device(type));
}

// Returns the type of the buffers that are mapped files. ggml does not export it.
ggml_backend_buffer_type_t mapped_type() {
    alignas(64) static char bytes[64];
    ggml_backend_buffer_t buffer = ggml_backend_cpu_buffer_from_ptr(bytes, sizeof bytes);
    const ggml_backend_buffer_type_t type = ggml_backend_buffer_get_type(buffer);
    ggml_backend_buffer_free(buffer);
    return type;
}

// Returns the bytes of the tensors in mapped files. A mapped buffer reaches from its first tensor to its last one, and
// between them lie all those that are elsewhere: on a device, or repacked for the CPU. Nothing reads their pages again.
int64_t mapped_bytes(const llama_model *model, ggml_backend_buffer_type_t mapped) {
    size_t n = 0;
    for (const auto &[name, tensor] : llama_internal_get_tensor_map(model))
        if (tensor->buffer && ggml_backend_buffer_get_type(tensor->buffer) == mapped) n += ggml_nbytes(tensor);
    return static_cast<int64_t>(n);
}

int32_t write_uses(const Uses &uses, llamad_memory_use *out, int32_t n_max) {
    int32_t n = 0;
    for (const auto &[device, use] : uses) {
        if (n < n_max) {
            out[n] = use;
            out[n].device = device;
        }
        n++;
    }
    return n;
}

std::vector<ggml_backend_dev_t> devices_of(const llama_model *model) {
    std::vector<ggml_backend_dev_t> devices;
    for (int32_t i = 0; i < llama_model_n_devices(model); i++) devices.push_back(llama_model_get_device(model, i));
    if (devices.empty()) devices.push_back(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU));
    return devices;
}

} // namespace

extern "C" {

int32_t llamad_context_memory(llamad_context *ctx, llamad_memory_use *out, int32_t n_max) {
    return guarded<int32_t>(-1, [&] {
        Uses uses;
        const llama_context *context = llamad_context_get(ctx);
        const ggml_backend_buffer_type_t mapped = mapped_type();
        for (const auto &[type, data] : llama_get_memory_breakdown(context)) {
            const ggml_backend_dev_t place = place_of(type);
            llamad_memory_use &use = uses[place];
            const int64_t weights = type == mapped ? mapped_bytes(llama_get_model(context), mapped)
                                                   : static_cast<int64_t>(data.model);
            use.weights += weights;
            if (!place && !ggml_backend_buft_is_host(type)) use.repacked += weights;
            use.cache += static_cast<int64_t>(data.context);
            use.compute += static_cast<int64_t>(data.compute);
        }
        return write_uses(uses, out, n_max);
    });
}

int32_t llamad_projector_memory(const char *path, const llamad_media_params *params, llamad_memory_use *out,
                                int32_t n_max) {
    return guarded<int32_t>(-1, [&] {
        if (llamad_backends_open() != 0) return -1;
        mtmd_context_params ctx_params = mtmd_context_params_default();
        ctx_params.use_gpu = params->uses_gpu != 0;
        ctx_params.n_threads = params->n_threads;
        ctx_params.image_min_tokens = params->image_min_tokens;
        ctx_params.image_max_tokens = params->image_max_tokens;
        ctx_params.flash_attn_type = static_cast<llama_flash_attn_type>(params->flash_attn);
        if (params->device) ctx_params.device = ggml_backend_dev_by_name(params->device);
        Uses uses;
        for (const auto &[device, size] : mtmd_get_memory_usage(path, ctx_params))
            uses[place_of(device)].weights += static_cast<int64_t>(size);
        return uses.empty() ? -1 : write_uses(uses, out, n_max);
    });
}

int32_t llamad_model_devices(const struct llama_model *model, ggml_backend_dev_t *devices, int32_t n_max) {
    return guarded<int32_t>(-1, [&] {
        const int32_t n = llama_model_n_devices(model);
        for (int32_t i = 0; i < n && i < n_max; i++) devices[i] = llama_model_get_device(model, i);
        return n;
    });
}

int64_t llamad_model_free(const struct llama_model *model) {
    return guarded<int64_t>(0, [&] {
        size_t least = INT64_MAX;
        for (ggml_backend_dev_t device : devices_of(model)) {
            size_t free = 0, total = 0;
            ggml_backend_dev_memory(device, &free, &total);
            least = std::min({least, free, ggml_backend_buft_get_max_size(ggml_backend_dev_buffer_type(device))});
        }
        return static_cast<int64_t>(least);
    });
}

int64_t llamad_model_alignment(const struct llama_model *model) {
    return guarded<int64_t>(0, [&] {
        size_t largest = 1;
        for (ggml_backend_dev_t device : devices_of(model))
            largest = std::max(largest, ggml_backend_buft_get_alignment(ggml_backend_dev_buffer_type(device)));
        return static_cast<int64_t>(largest);
    });
}

int32_t llamad_model_n_expert(const struct llama_model *model) { return llama_model_n_expert(model); }
}
