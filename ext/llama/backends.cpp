// Opens llama.cpp's backends. In a portable build they are modules beside llama.cpp's libraries, one for each kind of
// CPU, and ggml chooses the fastest that this machine can run. Otherwise they are linked, and there is nothing to find.
#include "ggml-backend.h"
#include "guarded.hpp"
#include "llama.h"
#include "shim.h"

#include <dlfcn.h>
#include <filesystem>
#include <string>

namespace {

// llama.cpp itself would look beside the Python interpreter, and then in the current directory, where anybody may have
// put a library of this name.
std::filesystem::path folder() {
    Dl_info info{};
    dladdr(reinterpret_cast<void *>(&ggml_backend_load_all_from_path), &info);
    return info.dli_fname ? std::filesystem::path(info.dli_fname).parent_path() : std::filesystem::path();
}

int32_t open_all() {
    if (ggml_backend_reg_count() == 0) ggml_backend_load_all_from_path(folder().c_str());
    if (!ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU)) {
        llamad_remember_error(("llama.cpp has no backend for this CPU in " + folder().string()).c_str());
        return -1;
    }
    llama_backend_init();
    return 0;
}

} // namespace

extern "C" int32_t llamad_backends_open(void) {
    return guarded<int32_t>(-1, [] {
        static const int32_t result = open_all(); // other threads wait for the first
        return result;
    });
}
