#include "host_pages.h"
#include "shim.h"

#include <algorithm>
#include <cstdlib>
#include <ggml-backend.h>

namespace {

// The functions of the first backend that has both. They are optional. CUDA's work only if an environment variable is
// set, which nothing else reads.
struct Functions {
    bool (*lock)(void *, size_t) = nullptr;
    void (*unlock)(void *) = nullptr;

    Functions() {
        setenv("GGML_CUDA_REGISTER_HOST", "1", 0);
        for (size_t i = 0; i < ggml_backend_reg_count() && !unlock; i++) {
            ggml_backend_reg_t reg = ggml_backend_reg_get(i);
            void *lock_at = ggml_backend_reg_get_proc_address(reg, "ggml_backend_register_host_buffer");
            void *unlock_at = ggml_backend_reg_get_proc_address(reg, "ggml_backend_unregister_host_buffer");
            if (!lock_at || !unlock_at) continue;
            lock = reinterpret_cast<bool (*)(void *, size_t)>(lock_at);
            unlock = reinterpret_cast<void (*)(void *)>(unlock_at);
        }
    }
};

const Functions &functions() {
    static const Functions functions;
    return functions;
}

constexpr int32_t DEVICES_MAX = 16;

// Returns NULL if none of the devices has such memory.
ggml_backend_buffer_type_t locked_type(const llama_model *model) {
    ggml_backend_dev_t devices[DEVICES_MAX];
    const int32_t n = std::min(llamad_model_devices(model, devices, DEVICES_MAX), DEVICES_MAX);
    for (int32_t i = 0; i < n; i++) {
        ggml_backend_buffer_type_t type = ggml_backend_dev_host_buffer_type(devices[i]);
        if (type) return type;
    }
    return nullptr;
}

} // namespace

int32_t host_pages_lock(uint8_t *data, size_t n) { return functions().lock && functions().lock(data, n); }

void host_pages_unlock(uint8_t *data) {
    if (functions().unlock) functions().unlock(data);
}

uint8_t *host_pages_alloc(const llama_model *model, size_t n, void **buffer) {
    ggml_backend_buffer_type_t type = locked_type(model);
    if (!type) return nullptr;
    ggml_backend_buffer_t allocated = ggml_backend_buft_alloc_buffer(type, n);
    if (!allocated) return nullptr;
    // What cannot be locked becomes a plain buffer of the CPU.
    if (ggml_backend_buffer_get_type(allocated) != type) {
        ggml_backend_buffer_free(allocated);
        return nullptr;
    }
    *buffer = allocated;
    return static_cast<uint8_t *>(ggml_backend_buffer_get_base(allocated));
}

void host_pages_free(void *buffer) { ggml_backend_buffer_free(static_cast<ggml_backend_buffer_t>(buffer)); }
