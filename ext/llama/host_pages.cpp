#include "host_pages.h"

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

} // namespace

int32_t host_pages_lock(uint8_t *data, size_t n) { return functions().lock && functions().lock(data, n); }

void host_pages_unlock(uint8_t *data) {
    if (functions().unlock) functions().unlock(data);
}
